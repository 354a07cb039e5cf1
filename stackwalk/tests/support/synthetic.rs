//! A process with as many nmethods as wanted, in the layout of a recorded JVM, and stacks that run through them.
//!
//! The tables come from a fixture. Code lies in a heap of its own that replaces the first one, debug information in
//! blocks outside of it (JDK 25) or behind the code (JDK 17). What each pc stands for is known from the generator.

#![allow(dead_code)]

use std::cell::Cell;
use std::collections::BTreeMap;

use stackwalk::{Capture, HotSpot, LiveMemory, Memory, Unreadable};

use super::fixture::Fixture;

/// Bytes reserved for one nmethod with its block header: header, code, and on JDK 17 the debug information.
const BLOB: u64 = 16 << 10;
/// Start of the blob's instructions and their size.
const CODE: u64 = 512;
const CODE_BYTES: u64 = 4096;
/// Distance between two pcs with debug information.
const STEP: u64 = 16;
/// Most pcs of an nmethod, whose debug information fits into [`BLOB`].
pub const MAX_PCS: u64 = 200;
/// Address of the blocks outside the code cache.
const BLOCKS: u64 = 0x5555_0000_0000;
/// Bytes reserved for the blocks of one nmethod.
const BLOCK: u64 = 16 << 10;
const METHODS: u64 = 0x7eee_0000_0000;
/// Address of the code heap.
const HEAP: u64 = 0x6000_0000_0000;
const SEGMENTS: u64 = 0x5333_0000_0000;
const STRINGS: u64 = 0x5444_0000_0000;
/// Addresses of methods with names, and of the symbols.
const NAMED: u64 = 0x7ddd_0000_0000;
const SYMBOLS: u64 = 0x7dde_0000_0000;

/// Frames of `chain`: method and bci, innermost first.
pub type Chain = Vec<(u64, i32)>;

/// Deterministic random numbers.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }
}

/// Contents of one nmethod.
pub struct Shape {
    pub compile_id: u32,
    pub pcs: u64,
    pub seed: u64,
}

/// Address at which [`with_oop_map_count`] puts the names of its row.
const OOP_MAPS_TEXT: u64 = 0x600_0000_0000;

/// Memory of the process.
pub struct Process {
    pub hotspot: HotSpot,
    image: BTreeMap<u64, Vec<u8>>,
    sorted: Vec<(u64, Vec<u8>)>,
    fields: BTreeMap<(String, String), u64>,
    code: Vec<u8>,
    blocks: Vec<u8>,
    /// By nmethod, by pc in the order of addresses.
    chains: Vec<Vec<Chain>>,
    live: LiveMemory,
    header: u64,
    sizes: BTreeMap<&'static str, u64>,
    /// Reads of blocks outside the code cache, each a system call in an agent.
    pub checked: Cell<u64>,
    /// Blocks that cannot be read.
    pub unreadable: Cell<bool>,
    /// True if reads of blocks are the system calls that an agent makes.
    pub real_calls: bool,
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let refused = Unreadable(address);
        let inside = |start: u64, bytes: &[u8]| {
            let offset = usize::try_from(address.checked_sub(start)?).ok()?;
            (offset.checked_add(into.len())? <= bytes.len()).then_some(offset)
        };
        if let Some(offset) = inside(HEAP, &self.code) {
            into.copy_from_slice(&self.code[offset..][..into.len()]);
            return Ok(());
        }
        if let Some(offset) = inside(BLOCKS, &self.blocks) {
            self.checked.set(self.checked.get() + 1);
            if self.unreadable.get() {
                return Err(refused);
            }
            if self.real_calls {
                return self.live.read(self.blocks[offset..].as_ptr().addr() as u64, into);
            }
            into.copy_from_slice(&self.blocks[offset..][..into.len()]);
            return Ok(());
        }
        let after = self.sorted.partition_point(|(start, _)| *start <= address);
        let (start, bytes) = after.checked_sub(1).and_then(|at| self.sorted.get(at)).ok_or(refused)?;
        let offset = (address - start) as usize;
        let found = bytes.get(offset..).and_then(|rest| rest.get(..into.len())).ok_or(refused)?;
        into.copy_from_slice(found);
        Ok(())
    }
}

fn c_string(memory: &impl Memory, address: u64) -> String {
    let bytes = (address..).map_while(|at| memory.read_u8(at).ok().filter(|&byte| byte != 0 && address != 0));
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Offsets of instance fields and addresses of static ones, by type and name.
fn fields(fixture: &Fixture) -> BTreeMap<(String, String), u64> {
    let value = |name: &str| fixture.read_u64(fixture.symbols[name]).expect("recorded");
    let entry = |column: &str| value(&format!("gHotSpotVMStructEntry{column}"));
    let mut row = value("gHotSpotVMStructs");
    let mut found = BTreeMap::new();
    while fixture.read_u64(row).expect("recorded") != 0 {
        let word = |column| fixture.read_u64(row + entry(column)).expect("recorded");
        let is_static = fixture.read_u32(row + entry("IsStaticOffset")).expect("recorded") != 0;
        let place = word(if is_static { "AddressOffset" } else { "OffsetOffset" });
        let text = |column| c_string(fixture, word(column));
        found.insert((text("TypeNameOffset"), text("FieldNameOffset")), place);
        row += value("gHotSpotVMStructEntryArrayStride");
    }
    found
}

/// The fixture with a row for the number of oop maps, which recorded tables lack, in place of one that no walk uses.
pub fn with_oop_map_count(mut fixture: Fixture) -> Fixture {
    let value = |name: &str| fixture.read_u64(fixture.symbols[name]).expect("recorded");
    let column = |column: &str| value(&format!("gHotSpotVMStructEntry{column}Offset"));
    let (kind, field) = (column("TypeName"), column("FieldName"));
    let mut row = value("gHotSpotVMStructs");
    while c_string(&fixture, fixture.read_u64(row + field).expect("a row of this name")) != "_max_locals" {
        row += value("gHotSpotVMStructEntryArrayStride");
    }
    let (start, region) = fixture.regions.range_mut(..=row).next_back().expect("recorded");
    for (column, text) in [(kind, OOP_MAPS_TEXT), (field, OOP_MAPS_TEXT + 32)] {
        region[(row + column - start) as usize..][..8].copy_from_slice(&text.to_ne_bytes());
    }
    let mut texts = vec![0; 128];
    texts[..18].copy_from_slice(b"ImmutableOopMapSet");
    texts[32..38].copy_from_slice(b"_count");
    fixture.regions.insert(OOP_MAPS_TEXT, texts);
    fixture
}

/// The size of a C++ type.
fn type_size(fixture: &Fixture, name: &str) -> u64 {
    let word = |address| fixture.read_u64(address).expect("recorded");
    let mut row = word(fixture.symbols["gHotSpotVMTypes"]);
    while c_string(fixture, word(row)) != name {
        row += word(fixture.symbols["gHotSpotVMTypeEntryArrayStride"]);
    }
    word(row + word(fixture.symbols["gHotSpotVMTypeEntrySizeOffset"]))
}

impl Process {
    /// A process with `count` nmethods, whose shapes `shape` gives.
    pub fn new(fixture: &Fixture, count: usize, mut shape: impl FnMut(usize) -> Shape) -> Self {
        let mut process = Self {
            hotspot: fixture.hotspot(),
            image: fixture.regions.clone(),
            sorted: Vec::new(),
            fields: fields(fixture),
            code: vec![0; count * BLOB as usize],
            blocks: vec![0; count * BLOCK as usize],
            chains: vec![Vec::new(); count],
            live: LiveMemory::new(),
            header: 0,
            sizes: BTreeMap::new(),
            checked: Cell::new(0),
            unreadable: Cell::new(false),
            real_calls: false,
        };
        process.add_heap(fixture, count as u64);
        process.image.insert(STRINGS, b"nmethod\0".iter().copied().chain([0; 64]).collect());
        process.sorted = std::mem::take(&mut process.image).into_iter().collect();
        let mut hotspot = fixture.hotspot();
        hotspot.start(&process).expect("recorded");
        process.hotspot = hotspot;
        (0..count).for_each(|index| process.compile(index, &shape(index)));
        process
    }

    fn field(&self, name: &str) -> Option<u64> {
        let (kind, field) = name.rsplit_once("::").expect("a type and a field");
        self.fields.get(&(kind.to_owned(), field.to_owned())).copied()
    }

    fn at(&self, name: &str) -> u64 {
        self.field(name).unwrap_or_else(|| panic!("no field {name}"))
    }

    fn patch(&mut self, address: u64, value: u64) {
        let recorded = self.image.range_mut(..=address).next_back().and_then(|(start, bytes)| {
            let offset = (address - start) as usize;
            bytes.get_mut(offset..offset + 8)
        });
        match recorded {
            Some(word) => word.copy_from_slice(&value.to_ne_bytes()),
            None => drop(self.image.insert(address, value.to_ne_bytes().to_vec())),
        }
    }

    /// Makes the first code heap a committed one of `count` blocks at [`HEAP`].
    fn add_heap(&mut self, fixture: &Fixture, count: u64) {
        let word = |address| fixture.read_u64(address).expect("recorded");
        let heaps = word(word(self.at("CodeCache::_heaps")) + self.at("GrowableArray<int>::_data"));
        let heap = word(heaps);
        let log2 = fixture.read_u32(heap + self.at("CodeHeap::_log2_segment_size")).expect("recorded");
        let segments = (0..(count * BLOB) >> log2).map(|segment| (segment % (BLOB >> log2)).min(254) as u8);
        self.image.insert(SEGMENTS, segments.collect());
        self.patch(heap + self.at("CodeHeap::_segmap") + self.at("VirtualSpace::_low"), SEGMENTS);
        let memory = heap + self.at("CodeHeap::_memory");
        for (bound, value) in [("low", HEAP), ("high", HEAP + count * BLOB)] {
            self.patch(memory + self.at(&format!("VirtualSpace::_{bound}")), value);
            self.patch(memory + self.at(&format!("VirtualSpace::_{bound}_boundary")), value);
        }
        self.sizes = ["HeapBlock", "ConstantPool"].map(|name| (name, type_size(fixture, name))).into();
        self.header = self.type_size("HeapBlock");
    }

    fn type_size(&self, name: &str) -> u64 {
        self.sizes[name]
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let (start, memory) = if address >= BLOCKS && address < BLOCKS + self.blocks.len() as u64 {
            (BLOCKS, &mut self.blocks)
        } else {
            (HEAP, &mut self.code)
        };
        memory[(address - start) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Writes an nmethod, over the one that was there.
    pub fn compile(&mut self, index: usize, shape: &Shape) {
        let mut random = Random(shape.seed | 1);
        let block = HEAP + index as u64 * BLOB;
        let blob = block + self.header;
        let code = blob + CODE;
        // The records: scope data offset, method and bci of each, and its callers.
        let modern = self.hotspot.jdk_major() >= 20;
        let mut methods = vec![METHODS + (shape.seed % 4096) * 8];
        methods.extend((0..random.below(12)).map(|_| METHODS + random.below(100_000) * 8));
        let (mut scopes, mut records): (Vec<u8>, Vec<(u32, Chain)>) = (vec![0xff], Vec::new());
        let number = |scopes: &mut Vec<u8>, mut value: u32| {
            for _ in 0..4 {
                if value < 192 - u32::from(modern) {
                    break;
                }
                let digit = (192 - u32::from(modern)) + (value - (192 - u32::from(modern))) % 64;
                scopes.push((digit + u32::from(modern)) as u8);
                value = (value - digit) >> 6;
            }
            scopes.push((value + u32::from(modern)) as u8);
        };
        for record in 0..shape.pcs.max(1) * 3 / 2 {
            let caller = records.get(random.below(record) as usize).cloned();
            let caller = caller.filter(|(_, chain)| record != 0 && chain.len() < 14);
            let caller = caller.or_else(|| records.first().cloned());
            let chosen = if caller.is_none() { 0 } else { random.below(methods.len() as u64) };
            let bci = random.below(300) as i32 - 1;
            let (sender, mut chain) = caller.unwrap_or((0, Vec::new()));
            chain.insert(0, (methods[chosen as usize], bci));
            records.push((scopes.len() as u32, chain));
            number(&mut scopes, sender);
            number(&mut scopes, chosen as u32 + 1);
            number(&mut scopes, (bci + 1) as u32);
            // Locals, expressions and monitors.
            (0..3 + random.below(20)).for_each(|_| scopes.push(1 + random.below(180) as u8));
        }
        let mut pcs: Vec<u8> = Vec::new();
        let mut desc = |pc: i32, scope: u32| {
            pcs.extend(pc.to_ne_bytes());
            pcs.extend(scope.to_ne_bytes());
            pcs.extend([0; 8]);
        };
        desc(-1, 0);
        self.chains[index].clear();
        for pc in 0..shape.pcs {
            let (offset, chain) = &records[random.below(records.len() as u64) as usize];
            desc(((pc + 1) * STEP) as i32, *offset);
            self.chains[index].push(chain.clone());
        }
        desc(CODE_BYTES as i32 + 1, 0);
        let metadata: Vec<u8> = methods.iter().flat_map(|method| method.to_ne_bytes()).collect();
        self.write(block, shape, [&pcs, &scopes, &metadata], methods[0]);
        for pc in 1..=shape.pcs {
            // A call before each pc.
            self.put(code + pc * STEP - 5, &[0xe8]);
        }
    }

    /// Gives an nmethod `count` oop maps, as many as it has safepoints; without this it has none.
    pub fn set_oop_maps(&mut self, index: usize, count: u32) {
        let maps = BLOCKS + (index as u64 + 1) * BLOCK - 256;
        let blob = HEAP + index as u64 * BLOB + self.header;
        self.put(maps + self.at("ImmutableOopMapSet::_count"), &count.to_ne_bytes());
        self.put(blob + self.at("CodeBlob::_oop_maps"), &maps.to_ne_bytes());
    }

    fn write(&mut self, block: u64, shape: &Shape, debug: [&[u8]; 3], method: u64) {
        let [pcs, scopes, metadata] = debug;
        let blob = block + self.header;
        let (code, code_end) = (blob + CODE, blob + CODE + CODE_BYTES);
        let index = (block - HEAP) / BLOB;
        let in_blob = self.field("nmethod::_immutable_data").is_none();
        let immutable = if in_blob { code_end + 64 } else { BLOCKS + index * BLOCK };
        let mutable = immutable + BLOCK - 1024;
        let (pcs_at, scopes_at) = if in_blob {
            let scopes_at = immutable + metadata.len() as u64;
            ((scopes_at + scopes.len() as u64).next_multiple_of(8), scopes_at)
        } else {
            (immutable + 24, immutable + 24 + pcs.len() as u64)
        };
        assert!(pcs.len() + scopes.len() + metadata.len() + 64 < (BLOB - CODE - CODE_BYTES) as usize - 1024);
        self.put(pcs_at, pcs);
        self.put(scopes_at, scopes);
        self.put(if in_blob { immutable } else { mutable + 40 }, metadata);
        self.put(block + self.at("HeapBlock::Header::_used"), &[1]);
        let mut word = |name: &str, value: u64, width: usize| {
            if let Some(offset) = self.field(name) {
                self.put(blob + offset, &value.to_ne_bytes()[..width]);
            }
        };
        word("CodeBlob::_name", STRINGS, 8);
        word("CodeBlob::_size", BLOB - 64, 4);
        word("CodeBlob::_frame_size", frame_words(index), 4);
        word("CodeBlob::_kind", 1, 1);
        word("CodeBlob::_code_begin", code, 8);
        word("CodeBlob::_code_end", code_end, 8);
        word("CodeBlob::_code_offset", CODE, 4);
        word("CodeBlob::_data_offset", CODE + CODE_BYTES, 4);
        for owner in ["CompiledMethod", "nmethod"] {
            word(&format!("{owner}::_method"), method, 8);
            word(&format!("{owner}::_scopes_data_begin"), scopes_at, 8);
            word(&format!("{owner}::_deopt_handler_begin"), 0, 8);
        }
        word("nmethod::_compile_id", u64::from(shape.compile_id), 4);
        word("nmethod::_comp_level", 4, 1);
        word("nmethod::_deopt_handler_offset", u64::MAX, 4);
        word("nmethod::_deopt_mh_handler_offset", u64::MAX, 4);
        if in_blob {
            word("nmethod::_scopes_pcs_offset", pcs_at - blob, 4);
            word("nmethod::_dependencies_offset", pcs_at + pcs.len() as u64 - blob, 4);
            word("nmethod::_metadata_offset", immutable - blob, 4);
        } else {
            word("nmethod::_immutable_data", immutable, 8);
            let end = scopes_at + scopes.len() as u64;
            word("nmethod::_immutable_data_size", end - immutable, 4);
            word("nmethod::_scopes_pcs_offset", pcs_at - immutable, 4);
            word("nmethod::_scopes_data_offset", scopes_at - immutable, 4);
            word("CodeBlob::_mutable_data", mutable, 8);
            word("CodeBlob::_mutable_data_size", 40 + metadata.len() as u64, 4);
            word("CodeBlob::_relocation_size", 40, 4);
        }
    }

    /// Gives the method of an nmethod a name, which it shares with the others of that name, and a descriptor.
    pub fn name_method(&mut self, index: usize, name: &str) {
        /// Bytes reserved for a `Method`, its `ConstMethod` and its constant pool.
        const PART: u64 = 1024;
        let start = NAMED + index as u64 * 4 * PART;
        let [method, constant, pool] = [0, 1, 2].map(|part| start + part * PART);
        let mut memory = vec![0; 4 * PART as usize];
        let mut put = |address: u64, bytes: &[u8]| {
            memory[(address - start) as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        put(method + self.at("Method::_constMethod"), &constant.to_ne_bytes());
        put(constant + self.at("ConstMethod::_constants"), &pool.to_ne_bytes());
        put(constant + self.at("ConstMethod::_name_index"), &1_u16.to_ne_bytes());
        put(constant + self.at("ConstMethod::_signature_index"), &2_u16.to_ne_bytes());
        let header = self.type_size("ConstantPool");
        let symbol =
            SYMBOLS + name.bytes().fold(7, |hash: u64, byte| (hash * 31 + u64::from(byte)) % 4096) * 8;
        put(pool + header + 8, &symbol.to_ne_bytes());
        put(pool + header + 16, &SYMBOLS.to_ne_bytes());
        self.add_region(start, &memory);
        let blob = HEAP + index as u64 * BLOB + self.header;
        // The outermost scope must be the same method, so the metadata names it as well.
        let old = self.field("CompiledMethod::_method").or(self.field("nmethod::_method")).expect("a field");
        let before = self.read_u64(blob + old).expect("written");
        for memory in [&mut self.code, &mut self.blocks] {
            for word in memory.as_chunks_mut::<8>().0 {
                if *word == before.to_ne_bytes() {
                    *word = method.to_ne_bytes();
                }
            }
        }
        for (found, _) in self.chains[index].iter_mut().flatten() {
            if *found == before {
                *found = method;
            }
        }
    }

    /// Makes a buffer of this name, with this code, of an nmethod.
    pub fn make_buffer(&mut self, index: usize, text: &str, code: &[u8]) {
        /// `CodeBlobKind::Buffer` of JDK 25.
        const BUFFER: u8 = 2;
        let name = STRINGS + 0x1000;
        self.add_region(name, &[text.as_bytes(), &[0; 64]].concat());
        let blob = HEAP + index as u64 * BLOB + self.header;
        self.put(blob + self.at("CodeBlob::_name"), &name.to_ne_bytes());
        self.put(blob + self.at("CodeBlob::_frame_size"), &[0; 4]);
        if let Some(kind) = self.field("CodeBlob::_kind") {
            self.put(blob + kind, &[BUFFER]);
        }
        self.put(self.code(index), &[0xcc; CODE_BYTES as usize]);
        self.put(self.code(index), code);
    }

    /// Makes the call before a pc one of `target`.
    pub fn set_call(&mut self, place: (usize, u64), target: u64) {
        let distance = target.wrapping_sub(self.pc(place)) as u32;
        self.put(self.pc(place) - 4, &distance.to_ne_bytes());
    }

    /// Puts the entry of an nmethod's deoptimisation handler at an address; for layouts that keep its distance from the
    /// blob.
    pub fn set_deopt_handler(&mut self, index: usize, entry: u64) {
        let blob = HEAP + index as u64 * BLOB + self.header;
        let offset = (entry - blob) as u32;
        self.put(blob + self.at("nmethod::_deopt_handler_offset"), &offset.to_ne_bytes());
    }

    /// Size of the frames of an nmethod.
    pub fn frame_bytes(&self, index: usize) -> u64 {
        frame_words(index as u64) * 8
    }

    /// Number of pcs of an nmethod.
    pub fn pcs(&self, index: usize) -> u64 {
        self.chains[index].len() as u64
    }

    /// Meaning of a pc.
    pub fn chain(&self, (index, pc): (usize, u64)) -> &Chain {
        &self.chains[index][pc as usize]
    }

    /// Address of a pc.
    pub fn pc(&self, (index, pc): (usize, u64)) -> u64 {
        self.code(index) + (pc + 1) * STEP
    }

    /// Address of the first instruction of an nmethod.
    pub fn code(&self, index: usize) -> u64 {
        HEAP + index as u64 * BLOB + self.header + CODE
    }

    /// Writes bytes of an nmethod's code, or in front of it.
    pub fn write_code(&mut self, address: u64, bytes: &[u8]) {
        self.put(address, bytes);
    }

    /// Address of the first instruction of the interpreter.
    pub fn interpreter(&self) -> u64 {
        let queue = self.read_u64(self.at("AbstractInterpreter::_code")).expect("recorded");
        self.read_u64(queue + self.at("StubQueue::_stub_buffer")).expect("recorded")
    }

    /// Makes an address the one to which Java methods return that the VM has called.
    pub fn set_call_stub_return(&mut self, fixture: &Fixture, address: u64) {
        let variable = self.at("StubRoutines::_call_stub_return_address");
        let after = self.sorted.partition_point(|(start, _)| *start <= variable);
        let (start, bytes) = &mut self.sorted[after - 1];
        bytes[(variable - *start) as usize..][..8].copy_from_slice(&address.to_ne_bytes());
        let mut hotspot = fixture.hotspot();
        hotspot.start(self).expect("recorded");
        self.hotspot = hotspot;
    }

    /// Adds memory that was not recorded.
    pub fn add_region(&mut self, address: u64, bytes: &[u8]) {
        let after = self.sorted.partition_point(|(start, _)| *start <= address);
        let ends = |(start, bytes): &(u64, Vec<u8>)| start + bytes.len() as u64;
        assert!(after == 0 || ends(&self.sorted[after - 1]) <= address, "it was recorded");
        assert!(self.sorted.get(after).is_none_or(|next| next.0 >= address + bytes.len() as u64), "the same");
        self.sorted.insert(after, (address, bytes.to_vec()));
    }

    /// The same moment while Java code runs at `pc` of the newest frame, which is complete.
    pub fn interrupted(&self, pc: u64, frames: &[(usize, u64)]) -> (Capture, Vec<u8>) {
        // `_thread_in_Java` of JDK 17 and 25.
        const IN_JAVA: u64 = 8;
        let (capture, stack) = self.stack(frames);
        (Capture { pc, anchor_sp: 0, anchor_pc: 0, thread_state: IN_JAVA, ..capture }, stack)
    }

    /// A stack that consists of these frames, newest first; above the oldest is no code.
    pub fn stack(&self, frames: &[(usize, u64)]) -> (Capture, Vec<u8>) {
        let mut stack = Vec::new();
        for (position, &(index, _)) in frames.iter().enumerate() {
            let caller = frames.get(position + 1).map_or(0, |&caller| self.pc(caller));
            stack.resize(stack.len() + (frame_words(index as u64) as usize - 1) * 8, 0);
            stack.extend(caller.to_ne_bytes());
        }
        let low = 0x7fff_0000_0000;
        stack.resize(stack.len() + 64, 0);
        let capture = Capture {
            sp: low,
            thread: 8,
            anchor_sp: low,
            anchor_pc: self.pc(frames[0]),
            stack_low: low,
            stack_high: low + stack.len() as u64,
            ..Capture::ZERO
        };
        (capture, stack)
    }
}

/// Size of the frames of an nmethod.
fn frame_words(index: u64) -> u64 {
    2 + index % 7 * 2
}
