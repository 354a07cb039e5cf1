//! The first part of a start, before the VM is initialised: it reads the VM's tables, chooses the signal, and opens the
//! destinations.

use std::ops::Range;
use std::path::PathBuf;

use sampler_thread::clock;
use sampler_thread::send::delivery::Target;
use sampler_thread::send::sink::Destinations;
use stackwalk::{HotSpot, LiveMemory};

use crate::clock::perf_event;
use crate::guest::log;
use crate::handler::install::{self, Sender};
use crate::jvmti::symbols::Library;
use crate::jvmti::vm::Vm;
use crate::jvmti::{Jvmti, Phase, vm_memory};
use crate::profile::destinations;
use crate::profile::refusal::Refusal;
use crate::vm::tables::{self, Preparation, VmTables};
use agent_options::{ClockOption, Mode, Options};

/// Last release whose method ids are addresses of pointers to methods; from 26 on they are numbers (JDK-8268406).
const LAST_WITH_METHOD_ADDRESSES: u32 = 25;

/// The VM of this process, whose library is found.
#[derive(Clone)]
pub struct Host {
    pub vm: Vm,
    pub jvmti: Jvmti,
    /// File of the VM's library, and the address of its first byte.
    pub library: (PathBuf, u64),
    /// The addresses of the VM's library.
    pub image: Range<u64>,
    pub memory: &'static LiveMemory,
}

impl Host {
    fn find(vm: Vm) -> Result<(Self, Library), Refusal> {
        let jvmti = vm.jvmti()?;
        let library =
            vm.library().ok_or_else(|| Refusal::unsupported(&jvmti, "its library was not found"))?;
        let memory = vm_memory::of_library(&library);
        let host = Self { vm, jvmti, library: library.origin(), image: library.image(), memory };
        Ok((host, library))
    }

    pub fn unsupported(&self, reason: impl ToString) -> Refusal {
        Refusal::unsupported(&self.jvmti, reason)
    }
}

/// A profile before the VM is initialised.
pub struct PreparedSession {
    pub(super) options: Options,
    pub host: Host,
    pub(super) preparation: Preparation,
    pub(super) destinations: Destinations,
    pub(super) collector: Option<Target>,
    /// True once the VM reports garbage collection pauses to this session.
    pub has_pause_events: bool,
    pub(super) signal: i32,
    /// True if the program runs already.
    pub is_attached: bool,
    /// Returns whether the program has chosen a thread; `None` if all are chosen.
    pub is_chosen: Option<fn(i32) -> bool>,
}

impl PreparedSession {
    /// Begins to read the VM's tables, and opens the destinations; `is_attached` if the program runs already.
    ///
    /// # Errors
    /// [`Refusal`]; an empty recording file may remain.
    pub fn new(options: Options, vm: Vm, is_attached: bool) -> Result<Self, Refusal> {
        log::write_to(options.log_file.as_deref());
        if is_attached {
            check_phase(&vm.jvmti()?)?;
        }
        let (host, library) = Host::find(vm)?;
        HotSpot::find_tables(|name| library.symbol(name), host.memory)
            .map_err(|error| host.unsupported(error))?;
        let tables = if is_attached || options.strict {
            let tables = VmTables::read(vm, host.memory).map_err(|error| host.unsupported(error))?;
            check_mode(options.mode, &tables.hotspot)?;
            Some(tables)
        } else {
            None
        };
        let choose = if is_attached { install::choose } else { install::choose_unblocked };
        let signal = choose(options.signal, sender(&options))?;
        if options.clock == ClockOption::Perf {
            perf_event::check().map_err(Refusal::PerfEvents)?;
        }
        clock::check().map_err(Refusal::Clock)?;
        let collector = destinations::collector(&options)?;
        let destinations = destinations::open_file(&options)?;
        let preparation = match tables {
            Some(tables) if is_attached => Preparation::Read(Box::new(tables)),
            tables => Preparation::begin(&options, vm, host.memory, tables).map_err(Refusal::NoThread)?,
        };
        Ok(Self {
            options,
            host,
            preparation,
            destinations,
            collector,
            has_pause_events: false,
            signal,
            is_attached,
            is_chosen: None,
        })
    }
}

/// Does for an agent that waits for a start what can only be done now: code that is compiled from now on gets
/// positions, and at the start of the VM the signal of the timers is unblocked. Makes no timer, handler or thread.
///
/// # Errors
/// [`Refusal`].
pub fn prepare_waiting(options: &Options, vm: Vm, is_attached: bool) -> Result<(), Refusal> {
    let (host, library) = Host::find(vm)?;
    tables::layouts(Some(&library), host.memory).map_err(|error| host.unsupported(error))?;
    if !is_attached {
        install::choose_unblocked(options.signal, sender(options))?;
    }
    Ok(())
}

/// Checks that a profile can begin at once: the functions that it needs work from the initialisation of the VM to
/// its end.
fn check_phase(jvmti: &Jvmti) -> Result<(), Refusal> {
    match jvmti.phase()? {
        Phase::Live => Ok(()),
        Phase::Earlier => Err(Refusal::VmStarts),
        Phase::Dead => Err(Refusal::VmEnds),
    }
}

/// Checks that stack traces in the mode can be read in this VM.
pub(super) fn check_mode(mode: Mode, hotspot: &HotSpot) -> Result<(), Refusal> {
    if mode == Mode::Jvmti && hotspot.jdk_major() > LAST_WITH_METHOD_ADDRESSES {
        return Err(Refusal::TracesOfLaterJdk(hotspot.jdk_major()));
    }
    Ok(())
}

pub(super) fn sender(options: &Options) -> Sender {
    match options.clock {
        ClockOption::Timer => Sender::Timers,
        ClockOption::Perf => Sender::Events,
    }
}
