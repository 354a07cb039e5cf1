//! The sampler thread's memory: read by the VM's own fault-tolerant load where that is certain to work.
//!
//! Problem: `SafeFetchN` of HotSpot is a local function, its faults are handled by whichever handler the process
//! has, and a fault on a thread that blocks SIGSEGV ends the process.
//! Approach: the function is found by name, in the library's symbol table (`sampler_thread::native::variables`),
//! and used if its code is exactly what is known, and if the kernel's present handler of SIGSEGV and of SIGBUS lies
//! in the VM's library, which is looked at before each drain. The system call is made directly, because `libjsig.so`
//! answers for it. Otherwise memory is read by system calls. A handler that takes over between two looks must pass
//! faults on to the VM's, as the VM needs them for its own null checks.
//! Invariant: SIGSEGV and SIGBUS are unblocked on the sampler thread while it reads by loads, and only then.
//! Sources: `os/posix/signals_posix.cpp` (the VM's handler treats these faults before anything that needs a thread
//! of the VM), `os/posix/vmError_posix.cpp` (`crash_handler` as well), `os/posix/safefetch_static_posix.cpp`, JDK
//! 17.0.9 to 25 and 28; in 17.0.2, the function is generated code (`StubRoutines`). Linux `kernel/signal.c`
//! (`force_sig_info_to_task`).

use std::ops::Range;
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use sampler_thread::native::variables::HiddenSymbols;
use stackwalk::{Choice, LiveMemory, LoadWord, Memory as _, SafeFetch};

/// The machine code: load and return; where the handler goes on, return the second argument.
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 8] = [0x48, 0x8b, 0x07, 0xc3, 0x48, 0x89, 0xf0, 0xc3];
/// The machine code: load and return; where the handler goes on, return the second argument.
#[cfg(target_arch = "aarch64")]
const CODE: [u8; 16] =
    [0x00, 0x00, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6, 0xe0, 0x03, 0x01, 0xaa, 0xc0, 0x03, 0x5f, 0xd6];

const FAULTS: [Signal; 2] = [Signal::SIGSEGV, Signal::SIGBUS];

/// Returns a reader for the sampler thread; `image` is the VM's library in memory.
pub fn of_sampler(memory: &'static LiveMemory, image: Range<u64>, symbols: Arc<HiddenSymbols>) -> SafeFetch {
    let choose = move || {
        let choice = choose(memory, &image, &symbols);
        let how = if choice.is_ok() { SigmaskHow::SIG_UNBLOCK } else { SigmaskHow::SIG_BLOCK };
        let faults = SigSet::from_iter(FAULTS);
        pthread_sigmask(how, Some(&faults), None).map_err(|_| "the signal mask cannot be changed")?;
        choice
    };
    // SAFETY: the function is HotSpot's by its name and code, which never change. Its faults are HotSpot's to
    // handle: the thread lets them through, and the handlers are HotSpot's, or pass faults of HotSpot's code on to
    // it. Only the sampler thread, to which the reader is moved before it first chooses, uses it.
    unsafe { SafeFetch::new(memory, choose) }
}

fn choose(memory: &LiveMemory, image: &Range<u64>, symbols: &HiddenSymbols) -> Choice {
    if !symbols.is_prepared() {
        return Err("the profile was too short to look for the VM's SafeFetchN");
    }
    let address = symbols.safe_fetch().ok_or("the VM's SafeFetchN was not found")?;
    let mut code = CODE;
    let is_known = memory.read(address, &mut code).is_ok() && code == CODE;
    if !is_known || !image.contains(&address) {
        return Err("the code of the VM's SafeFetchN is unknown");
    }
    if !FAULTS.iter().all(|signal| handler(*signal).is_some_and(|handler| image.contains(&handler))) {
        return Err("the handler of SIGSEGV or SIGBUS is not the VM's");
    }
    let function = std::ptr::with_exposed_provenance::<()>(address as usize);
    // SAFETY: a C function of this type, by its name and its code.
    Ok(unsafe { std::mem::transmute::<*const (), LoadWord>(function) })
}

/// Returns the address of a signal's handler as the kernel has it; 0 and 1 stand for no handler.
fn handler(signal: Signal) -> Option<u64> {
    // Handler, flags, restorer and mask, on both supported CPUs.
    let mut action = [0_u64; 4];
    let none = std::ptr::null::<u64>();
    // SAFETY: no new action is given, and the present one is written to `action`, which has its size.
    let outcome = unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal as i32, none, action.as_mut_ptr(), size_of::<u64>())
    };
    (outcome == 0).then_some(action[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_handler() {
        extern "C" fn ignore(_signal: libc::c_int) {}
        let before = handler(Signal::SIGURG);
        assert_eq!(before, Some(libc::SIG_DFL as u64));
        // SAFETY: the handler is valid for the life of the process, and nothing else in this process uses the signal.
        unsafe { libc::signal(libc::SIGURG, ignore as *const () as usize) };
        assert_eq!(handler(Signal::SIGURG), Some(ignore as *const () as u64));
    }
}
