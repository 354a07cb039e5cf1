//! Recorded walks with every byte that the walker read; tests repeat them without a JVM.
//!
//! A file holds the exported symbols, memory regions and, for each thread, capture, stack copy and expected text. If
//! any thread has frames frozen in the heap or a return from native code, these follow at the end. The VM's tables
//! are reduced to the rows that the walker reads; everything else is unchanged.

#![allow(dead_code)]

use stackwalk::{
    CAPTURE_BYTES, Capture, Frozen, HotSpot, Memory, NativeCode, NativeRegisters, NativeStop,
    PreservedRegisters, StackCopy, Unreadable,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"stackwalk fixture 1\n";

/// One recorded stop of a thread.
pub struct Thread {
    pub name: String,
    pub capture: Capture,
    pub stack: Vec<u8>,
    pub expected: String,
    pub frozen: FrozenCopy,
    pub native: Option<Returning>,
}

impl Thread {
    /// A stop whose frames all lie on the stack.
    pub fn on_stack(name: String, capture: Capture, stack: Vec<u8>, expected: String) -> Self {
        Self { name, capture, stack, expected, frozen: FrozenCopy::default(), native: None }
    }
}

/// The used part of each `StackChunk`, newest first, as the handler copies them.
#[derive(Clone, Default, Debug)]
pub struct FrozenCopy {
    /// Address of the first byte, two words below the newest frame, and the bytes.
    pub chunks: Vec<(u64, Vec<u8>)>,
    /// True if no older chunk is missing.
    pub whole: bool,
    /// True if the newest chunk had no frames; false in every file.
    pub emptied: bool,
}

impl FrozenCopy {
    pub fn as_frozen(&self) -> Frozen<'_> {
        let chunks = self.chunks.iter().map(|(base, bytes)| StackCopy::new(*base, bytes));
        Frozen::new(chunks, self.whole).emptied(self.emptied)
    }
}

/// Unwind tables with one entry: the registers with which the interrupted native code returns to VM code, recorded
/// when it was called.
#[derive(Clone, Copy, Debug)]
pub struct Returning(pub NativeRegisters);

impl NativeCode for Returning {
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        _stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        if registers.interrupted { Ok(self.0) } else { Err(NativeStop::NoRule(registers.pc)) }
    }
}

/// Contents of a fixture file.
#[derive(Default)]
pub struct Fixture {
    pub symbols: BTreeMap<String, u64>,
    pub regions: BTreeMap<u64, Vec<u8>>,
    pub threads: Vec<Thread>,
}

impl Memory for Fixture {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let (start, bytes) = self.regions.range(..=address).next_back().ok_or(Unreadable(address))?;
        let offset = (address - start) as usize;
        let found = bytes.get(offset..).and_then(|rest| rest.get(..into.len())).ok_or(Unreadable(address))?;
        into.copy_from_slice(found);
        Ok(())
    }
}

/// Any memory. The walker is compiled once for it instead of once for each type of memory, which takes ten times as
/// long as the tests.
pub struct AnyMemory<'a>(&'a dyn ReadBytes);

impl<'a> AnyMemory<'a> {
    pub fn new(memory: &'a impl Memory) -> Self {
        Self(memory)
    }
}

/// The part of [`Memory`] that has no generic function.
trait ReadBytes {
    fn read_bytes(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable>;
}

impl<M: Memory> ReadBytes for M {
    fn read_bytes(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.read(address, into)
    }
}

impl Memory for AnyMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.0.read_bytes(address, into)
    }
}

/// The CPU of the walker under test: that of the machine, or aarch64 in the package `stackwalk-aarch64`.
pub const CPU: &str =
    if cfg!(any(target_arch = "aarch64", stackwalk_aarch64)) { "aarch64" } else { "x86_64" };

/// Returns the folder of all fixtures, which the packages `stackwalk` and `stackwalk-aarch64` share.
pub fn root() -> PathBuf {
    let places = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|place| place.join("tests/fixtures"));
    places.into_iter().find(|place| place.is_dir()).expect("fixtures are in the tree")
}

/// Returns the fixture folders of this CPU, one for each JDK.
pub fn folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root()).expect("fixtures are in the tree");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    found.retain(|folder| folder.to_string_lossy().ends_with(CPU));
    found.sort();
    found
}

/// The registers that C functions preserve, as words; only recordings of x86-64 have returns from native code.
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
fn preserved_words(registers: &PreservedRegisters) -> Vec<u64> {
    let PreservedRegisters { rbx, r12, r13, r14, r15 } = *registers;
    vec![rbx, r12, r13, r14, r15]
}

#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
fn preserved_registers(words: &[u64]) -> Option<PreservedRegisters> {
    let &[rbx, r12, r13, r14, r15] = words else { return None };
    Some(PreservedRegisters { rbx, r12, r13, r14, r15 })
}

#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
fn preserved_words(_registers: &PreservedRegisters) -> Vec<u64> {
    Vec::new()
}

#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
fn preserved_registers(_words: &[u64]) -> Option<PreservedRegisters> {
    None
}

/// Returns the recorded stacks of each JDK.
pub fn all() -> Vec<PathBuf> {
    folders().into_iter().map(|folder| folder.join("stacks.bin")).collect()
}

/// Returns the recordings of this name, of each JDK that has one.
pub fn named(name: &str) -> Vec<PathBuf> {
    let files = folders().into_iter().map(|folder| folder.join(name));
    files.filter(|file| file.exists()).collect()
}

/// Returns the recorded virtual threads with frames in the heap, of each JDK that has them.
pub fn frozen() -> Vec<PathBuf> {
    let names = ["frozen-compiled.bin", "frozen-mixed.bin"];
    let files = folders().into_iter().flat_map(|folder| names.map(|name| folder.join(name)));
    files.filter(|file| file.exists()).collect()
}

impl Fixture {
    pub fn hotspot(&self) -> HotSpot {
        let mut hotspot =
            HotSpot::read_tables(|name| self.symbols.get(name).copied(), self).expect("recorded");
        hotspot.start(self).expect("recorded");
        hotspot
    }

    pub fn load(path: &Path) -> Self {
        let file = std::fs::read(path).expect("a fixture");
        let mut input = Input(file.strip_prefix(MAGIC).expect("a fixture of this version"));
        let mut fixture = Self::default();
        for _ in 0..input.number() {
            let name = input.text();
            fixture.symbols.insert(name, input.number());
        }
        for _ in 0..input.number() {
            let address = input.number();
            fixture.regions.insert(address, input.bytes().to_vec());
        }
        for _ in 0..input.number() {
            fixture.threads.push(Thread {
                name: input.text(),
                capture: capture(input.bytes()),
                stack: input.bytes().to_vec(),
                expected: input.text(),
                frozen: FrozenCopy::default(),
                native: None,
            });
        }
        if !input.is_empty() {
            for thread in &mut fixture.threads {
                thread.frozen = input.frozen();
                thread.native = input.native();
            }
        }
        assert!(input.is_empty(), "bytes after the last thread");
        fixture
    }

    pub fn store(&self, path: &Path) {
        let mut output = MAGIC.to_vec();
        let number = |output: &mut Vec<u8>, value: u64| output.extend(value.to_le_bytes());
        let bytes = |output: &mut Vec<u8>, bytes: &[u8]| {
            output.extend((bytes.len() as u64).to_le_bytes());
            output.extend(bytes);
        };
        number(&mut output, self.symbols.len() as u64);
        for (name, address) in &self.symbols {
            bytes(&mut output, name.as_bytes());
            number(&mut output, *address);
        }
        number(&mut output, self.regions.len() as u64);
        for (address, region) in &self.regions {
            number(&mut output, *address);
            bytes(&mut output, region);
        }
        number(&mut output, self.threads.len() as u64);
        for thread in &self.threads {
            bytes(&mut output, thread.name.as_bytes());
            let capture: [u8; CAPTURE_BYTES] = thread.capture.to_bytes();
            bytes(&mut output, &capture);
            bytes(&mut output, &thread.stack);
            bytes(&mut output, thread.expected.as_bytes());
        }
        if self.threads.iter().any(|thread| !thread.frozen.chunks.is_empty() || thread.native.is_some()) {
            for thread in &self.threads {
                number(&mut output, u64::from(thread.frozen.whole));
                number(&mut output, thread.frozen.chunks.len() as u64);
                for (base, chunk) in &thread.frozen.chunks {
                    number(&mut output, *base);
                    bytes(&mut output, chunk);
                }
                let words = thread.native.map_or(Vec::new(), |Returning(registers)| {
                    let NativeRegisters { pc, sp, fp, preserved, .. } = registers;
                    [&[pc, sp, fp][..], &preserved_words(&preserved)].concat()
                });
                number(&mut output, words.len() as u64);
                words.iter().for_each(|word| number(&mut output, *word));
            }
        }
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        std::fs::write(path, output).expect("writable");
    }
}

/// Decodes a capture. A recorded one may be shorter: fields are added at the end, and zero means absent.
fn capture(recorded: &[u8]) -> Capture {
    let mut bytes = [0; CAPTURE_BYTES];
    bytes.get_mut(..recorded.len()).expect("not longer than a capture").copy_from_slice(recorded);
    Capture::from_bytes(&bytes).expect("a capture")
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn number(&mut self) -> u64 {
        let (number, rest) = self.0.split_first_chunk::<8>().expect("eight bytes");
        self.0 = rest;
        u64::from_le_bytes(*number)
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number() as usize;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("text")
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn frozen(&mut self) -> FrozenCopy {
        let whole = self.number() != 0;
        let chunks = (0..self.number()).map(|_| (self.number(), self.bytes().to_vec())).collect();
        FrozenCopy { chunks, whole, emptied: false }
    }

    fn native(&mut self) -> Option<Returning> {
        let words: Vec<u64> = (0..self.number()).map(|_| self.number()).collect();
        let (&[pc, sp, fp], preserved) = words.split_first_chunk()?;
        let preserved = preserved_registers(preserved)?;
        Some(Returning(NativeRegisters { pc, sp, fp, preserved, interrupted: false }))
    }
}

/// Memory of a process, with the reduced tables in addition.
pub struct Overlaid<'a, M> {
    pub image: &'a Fixture,
    pub process: &'a M,
}

impl<M: Memory> Memory for Overlaid<'_, M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.image.read(address, into).or_else(|_| self.process.read(address, into))
    }
}

/// Memory that records every byte read through it.
pub struct Recorder<'m, M> {
    pub memory: &'m M,
    pub bytes: RefCell<BTreeMap<u64, u8>>,
}

impl<M: Memory> Memory for Recorder<'_, M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        self.memory.read(address, into)?;
        let read = into.iter().enumerate().map(|(index, &byte)| (address + index as u64, byte));
        self.bytes.borrow_mut().extend(read);
        Ok(())
    }
}

impl<M: Memory> Recorder<'_, M> {
    /// Returns the bytes read, as regions without gaps.
    pub fn regions(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut regions: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (&address, &byte) in self.bytes.borrow().iter() {
            match regions.last_entry() {
                Some(mut last) if last.key() + last.get().len() as u64 == address => {
                    last.get_mut().push(byte)
                }
                _ => drop(regions.insert(address, vec![byte])),
            }
        }
        regions
    }
}

/// Address of the reduced tables, which is never mapped in a real process.
const TABLES: u64 = 0x1000;

/// Types whose rows are kept.
const TYPES: &[&str] = &[
    "CodeCache",
    "GenericGrowableArray",
    "GrowableArrayBase",
    "GrowableArray<int>",
    "CodeHeap",
    "VirtualSpace",
    "HeapBlock",
    "HeapBlock::Header",
    "CodeBlob",
    "CompiledMethod",
    "nmethod",
    "PcDesc",
    "Method",
    "ConstMethod",
    "ConstantPool",
    "InstanceKlass",
    "Klass",
    "Symbol",
    "AbstractInterpreter",
    "StubQueue",
    "StubRoutines",
    "JavaFrameAnchor",
    "JavaCallWrapper",
    "JavaThread",
    "Thread",
    "OSThread",
    "Threads",
    "ThreadsSMRSupport",
    "ThreadsList",
    "Abstract_VM_Version",
    "JVMFlag",
    "AccessFlags",
];

/// Prefixes of constants that are kept.
const CONSTANTS: &[&str] =
    &["_thread_", "JavaThread::", "ConstMethod", "frame::", "CodeBlobKind::", "Klass::KlassKind::ValueKlass"];

/// Copies the rows of the tables that the walker may use; returns the symbols and the image at [`TABLES`].
pub fn reduced_tables(
    symbols: &dyn Fn(&str) -> Option<u64>,
    memory: &impl Memory,
) -> (BTreeMap<String, u64>, Vec<u8>) {
    let value = |name: &str| memory.read_u64(symbols(name).expect("exported")).expect("readable");
    let mut image = Vec::new();
    let mut found = BTreeMap::new();
    for (table, entry, columns) in [
        (
            "gHotSpotVMStructs",
            "gHotSpotVMStructEntry",
            &["TypeNameOffset", "FieldNameOffset", "TypeStringOffset"][..],
        ),
        ("gHotSpotVMTypes", "gHotSpotVMTypeEntry", &["TypeNameOffset", "SuperclassNameOffset"][..]),
        ("gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", &["NameOffset"][..]),
        ("gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", &["NameOffset"][..]),
    ] {
        let stride = value(&format!("{entry}ArrayStride"));
        let offsets: Vec<usize> =
            columns.iter().map(|column| value(&format!("{entry}{column}")) as usize).collect();
        let mut rows: Vec<(Vec<u8>, Vec<String>)> = Vec::new();
        let mut at = value(table);
        loop {
            let mut row = vec![0; stride as usize];
            memory.read(at, &mut row).expect("readable");
            let pointer =
                |offset: usize| u64::from_le_bytes(row[offset..offset + 8].try_into().expect("8 bytes"));
            if pointer(offsets[0]) == 0 {
                break;
            }
            let strings: Vec<String> =
                offsets.iter().map(|&offset| c_string(memory, pointer(offset))).collect();
            let kept = TYPES.contains(&strings[0].as_str())
                || CONSTANTS.iter().any(|prefix| columns.len() == 1 && strings[0].starts_with(prefix));
            if kept {
                rows.push((row, strings));
            }
            at += stride;
        }
        let start = TABLES + image.len() as u64;
        let mut texts = Vec::new();
        let text_start = start + (rows.len() as u64 + 1) * stride;
        for (row, strings) in &mut rows {
            for (&offset, string) in offsets.iter().zip(strings) {
                row[offset..offset + 8].copy_from_slice(&(text_start + texts.len() as u64).to_le_bytes());
                texts.extend(string.bytes().chain([0]));
            }
            image.extend_from_slice(row);
        }
        image.resize(image.len() + stride as usize, 0);
        image.extend(texts);
        image.resize(image.len().next_multiple_of(8), 0);
        found.insert(table.to_owned(), TABLES + image.len() as u64);
        image.extend(start.to_le_bytes());
    }
    for name in OFFSETS {
        found.insert((*name).to_owned(), TABLES + image.len() as u64);
        image.extend(value(name).to_le_bytes());
    }
    // Strings are read in blocks that may extend past the last string.
    image.resize(image.len() + 128, 0);
    (found, image)
}

/// Returns the address of the [`reduced_tables`].
pub fn tables_address() -> u64 {
    TABLES
}

fn c_string(memory: &impl Memory, address: u64) -> String {
    let bytes = (address..).map_while(|at| memory.read_u8(at).ok().filter(|&byte| byte != 0 && address != 0));
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

const OFFSETS: &[&str] = &[
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryTypeStringOffset",
    "gHotSpotVMStructEntryIsStaticOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySuperclassNameOffset",
    "gHotSpotVMTypeEntryIsOopTypeOffset",
    "gHotSpotVMTypeEntryIsIntegerTypeOffset",
    "gHotSpotVMTypeEntryIsUnsignedOffset",
    "gHotSpotVMTypeEntrySizeOffset",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMIntConstantEntryNameOffset",
    "gHotSpotVMIntConstantEntryValueOffset",
    "gHotSpotVMIntConstantEntryArrayStride",
    "gHotSpotVMLongConstantEntryNameOffset",
    "gHotSpotVMLongConstantEntryValueOffset",
    "gHotSpotVMLongConstantEntryArrayStride",
];
