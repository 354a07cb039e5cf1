//! Offsets of every VM field the walker uses, resolved once from the tables.
//!
//! Two builds of the same JDK release differ in offsets, and releases differ in field names, widths and owners,
//! so nothing here is a number: a field is named, found or not found, and its width comes from its C++ type.
//! A field that some supported JDK lacks is an `Option` in [`Layout`]; the note names the JDKs that have it.
//! Field names: `hotspot/share/runtime/vmStructs.cpp` of JDK 11, 17, 21, 25.

use super::LayoutError;
use super::vm_structs::{FieldRow, VmSymbols, visit_fields, visit_ints, visit_types};
use crate::memory::{Memory, Unreadable};

/// An instance field whose width differs between JDKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizedField {
    pub(crate) offset: u32,
    pub(crate) width: u8,
}

impl SizedField {
    /// Reads the field of the object at `object`, zero-extended.
    pub(crate) fn read<M: Memory + ?Sized>(self, memory: &M, object: u64) -> Result<u64, Unreadable> {
        let at = object.wrapping_add(u64::from(self.offset));
        match self.width {
            1 => memory.read_u8(at).map(u64::from),
            2 => memory.read_u16(at).map(u64::from),
            4 => memory.read_u32(at).map(u64::from),
            _ => memory.read_u64(at),
        }
    }

    /// Reads the field of the object at `object`, sign-extended.
    pub(crate) fn read_signed<M: Memory + ?Sized>(self, memory: &M, object: u64) -> Result<i64, Unreadable> {
        let at = object.wrapping_add(u64::from(self.offset));
        match self.width {
            1 => memory.read_u8(at).map(|value| i64::from(value.cast_signed())),
            2 => memory.read_u16(at).map(|value| i64::from(value.cast_signed())),
            4 => memory.read_i32(at).map(i64::from),
            _ => memory.read_u64(at).map(u64::cast_signed),
        }
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $(($type_name:literal, $field_name:literal))|+;)*) => {
        /// Every row of the fields table that is used, as found; `None` where this JDK has none.
        #[derive(Clone, Copy, Default)]
        struct FieldTable { $($(#[$doc])* $name: Option<FieldRow>,)* }

        impl FieldTable {
            fn put(&mut self, type_name: &str, field_name: &str, found: FieldRow) {
                match (type_name, field_name) {
                    $($(($type_name, $field_name))|+ => self.$name = Some(found),)*
                    _ => {}
                }
            }
        }
    };
}

fields! {
    // Code cache.
    heaps = ("CodeCache", "_heaps");
    low_bound = ("CodeCache", "_low_bound");
    high_bound = ("CodeCache", "_high_bound");
    growable_length = ("GenericGrowableArray", "_len") | ("GrowableArrayBase", "_len");
    growable_data = ("GrowableArray<int>", "_data");
    heap_memory = ("CodeHeap", "_memory");
    heap_segmap = ("CodeHeap", "_segmap");
    heap_log2_segment_size = ("CodeHeap", "_log2_segment_size");
    space_low = ("VirtualSpace", "_low");
    space_high = ("VirtualSpace", "_high");
    space_low_boundary = ("VirtualSpace", "_low_boundary");
    space_high_boundary = ("VirtualSpace", "_high_boundary");
    block_used = ("HeapBlock::Header", "_used");
    // CodeBlob.
    blob_name = ("CodeBlob", "_name");
    blob_size = ("CodeBlob", "_size");
    blob_kind = ("CodeBlob", "_kind");
    blob_frame_complete = ("CodeBlob", "_frame_complete_offset");
    blob_frame_size = ("CodeBlob", "_frame_size");
    blob_data_offset = ("CodeBlob", "_data_offset");
    blob_code_begin = ("CodeBlob", "_code_begin");
    blob_code_end = ("CodeBlob", "_code_end");
    blob_code_offset = ("CodeBlob", "_code_offset");
    blob_mutable_data = ("CodeBlob", "_mutable_data");
    blob_mutable_data_size = ("CodeBlob", "_mutable_data_size");
    blob_relocation_size = ("CodeBlob", "_relocation_size");
    // nmethod.
    nmethod_method = ("CompiledMethod", "_method") | ("nmethod", "_method");
    nmethod_scopes_data_begin = ("CompiledMethod", "_scopes_data_begin");
    nmethod_scopes_data_offset = ("nmethod", "_scopes_data_offset");
    nmethod_scopes_pcs_offset = ("nmethod", "_scopes_pcs_offset");
    nmethod_dependencies_offset = ("nmethod", "_dependencies_offset");
    nmethod_metadata_offset = ("nmethod", "_metadata_offset");
    nmethod_immutable_data = ("nmethod", "_immutable_data");
    nmethod_immutable_data_size = ("nmethod", "_immutable_data_size");
    nmethod_deopt_begin = ("CompiledMethod", "_deopt_handler_begin");
    nmethod_deopt_mh_begin = ("CompiledMethod", "_deopt_mh_handler_begin");
    nmethod_deopt_offset = ("nmethod", "_deopt_handler_offset") | ("nmethod", "_deopt_handler_entry_offset");
    nmethod_deopt_mh_offset = ("nmethod", "_deopt_mh_handler_offset");
    nmethod_orig_pc_offset = ("nmethod", "_orig_pc_offset");
    nmethod_verified_entry = ("nmethod", "_verified_entry_point");
    nmethod_verified_entry_offset = ("nmethod", "_verified_entry_offset");
    nmethod_osr_entry = ("nmethod", "_osr_entry_point");
    nmethod_compile_id = ("nmethod", "_compile_id");
    nmethod_comp_level = ("nmethod", "_comp_level");
    pc_desc_pc_offset = ("PcDesc", "_pc_offset");
    pc_desc_scope_offset = ("PcDesc", "_scope_decode_offset");
    // Methods.
    method_const_method = ("Method", "_constMethod");
    method_access_flags = ("Method", "_access_flags");
    method_flags = ("Method", "_flags");
    const_method_constants = ("ConstMethod", "_constants");
    const_method_size = ("ConstMethod", "_constMethod_size");
    const_method_flags = ("ConstMethod", "_flags") | ("ConstMethod", "_flags._flags");
    const_method_code_size = ("ConstMethod", "_code_size");
    const_method_name_index = ("ConstMethod", "_name_index");
    const_method_signature_index = ("ConstMethod", "_signature_index");
    pool_holder = ("ConstantPool", "_pool_holder");
    pool_length = ("ConstantPool", "_length");
    pool_source_file_index = ("ConstantPool", "_source_file_name_index");
    klass_source_file_index = ("InstanceKlass", "_source_file_name_index");
    klass_name = ("Klass", "_name");
    symbol_length = ("Symbol", "_length");
    symbol_body = ("Symbol", "_body");
    // Interpreter, stubs, anchors.
    interpreter_code = ("AbstractInterpreter", "_code");
    queue_buffer = ("StubQueue", "_stub_buffer");
    queue_limit = ("StubQueue", "_buffer_limit");
    call_stub_return = ("StubRoutines", "_call_stub_return_address");
    continuation_barrier = ("StubRoutines", "_cont_returnBarrier");
    anchor_sp = ("JavaFrameAnchor", "_last_Java_sp");
    anchor_pc = ("JavaFrameAnchor", "_last_Java_pc");
    anchor_fp = ("JavaFrameAnchor", "_last_Java_fp");
    wrapper_anchor = ("JavaCallWrapper", "_anchor");
    // Threads.
    thread_anchor = ("JavaThread", "_anchor");
    thread_state = ("JavaThread", "_thread_state");
    thread_osthread = ("JavaThread", "_osthread") | ("Thread", "_osthread");
    thread_id = ("OSThread", "_thread_id");
    thread_stack_base = ("JavaThread", "_stack_base");
    thread_stack_size = ("JavaThread", "_stack_size");
    thread_vframe_array_head = ("JavaThread", "_vframe_array_head");
    thread_cont_entry = ("JavaThread", "_cont_entry");
    thread_terminated = ("JavaThread", "_terminated");
    thread_saved_exception_pc = ("JavaThread", "_saved_exception_pc");
    thread_next = ("JavaThread", "_next");
    thread_object = ("JavaThread", "_threadObj");
    thread_vthread = ("JavaThread", "_vthread");
    thread_list_head = ("Threads", "_thread_list");
    threads_list = ("ThreadsSMRSupport", "_java_thread_list");
    threads_length = ("ThreadsList", "_length");
    threads_array = ("ThreadsList", "_threads");
    // VM.
    vm_major = ("Abstract_VM_Version", "_vm_major_version");
    flags = ("JVMFlag", "flags");
    flags_count = ("JVMFlag", "numFlags");
    flag_name = ("JVMFlag", "_name");
    flag_address = ("JVMFlag", "_addr");
    flag_flags = ("JVMFlag", "_flags");
}

/// Sizes of C++ types that are used.
#[derive(Clone, Copy, Default)]
struct TypeTable {
    heap_block: Option<u64>,
    const_method: Option<u64>,
    constant_pool: Option<u64>,
    access_flags: Option<u64>,
    jvm_flag: Option<u64>,
    pc_desc: Option<u64>,
}

/// Integer constants that are used.
#[derive(Clone, Copy, Default)]
struct ConstantTable {
    in_java: Option<i32>,
    not_terminated: Option<i32>,
    has_line_numbers: Option<i32>,
    entry_wrapper: Option<i32>,
    sender_sp: Option<i32>,
    kinds: BlobKindValues,
}

/// `CodeBlobKind` values; JDK 24 and later, renumbered in 28.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct BlobKindValues {
    pub(crate) nmethod: Option<i32>,
    pub(crate) adapter: Option<i32>,
    pub(crate) vtable: Option<i32>,
    pub(crate) method_handle_adapter: Option<i32>,
    pub(crate) runtime_stub: Option<i32>,
    pub(crate) deoptimization: Option<i32>,
    pub(crate) safepoint: Option<i32>,
    pub(crate) exception: Option<i32>,
    pub(crate) uncommon_trap: Option<i32>,
    pub(crate) upcall: Option<i32>,
}

impl ConstantTable {
    fn put(&mut self, name: &str, value: i32) {
        let kinds = &mut self.kinds;
        let slot = match name {
            "_thread_in_Java" => &mut self.in_java,
            "JavaThread::_not_terminated" => &mut self.not_terminated,
            "ConstMethod::_has_linenumber_table" | "ConstMethodFlags::_misc_has_linenumber_table" => {
                &mut self.has_line_numbers
            }
            "frame::entry_frame_call_wrapper_offset" => &mut self.entry_wrapper,
            "frame::interpreter_frame_sender_sp_offset" => &mut self.sender_sp,
            "CodeBlobKind::Nmethod" => &mut kinds.nmethod,
            "CodeBlobKind::Adapter" => &mut kinds.adapter,
            "CodeBlobKind::Vtable" => &mut kinds.vtable,
            "CodeBlobKind::MHAdapter" => &mut kinds.method_handle_adapter,
            "CodeBlobKind::RuntimeStub" => &mut kinds.runtime_stub,
            "CodeBlobKind::Deoptimization" => &mut kinds.deoptimization,
            "CodeBlobKind::Safepoint" => &mut kinds.safepoint,
            "CodeBlobKind::Exception" => &mut kinds.exception,
            "CodeBlobKind::UncommonTrap" => &mut kinds.uncommon_trap,
            "CodeBlobKind::Upcall" => &mut kinds.upcall,
            _ => return,
        };
        *slot = Some(value);
    }
}

/// `CodeCache`, `CodeHeap`, `HeapBlock`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeHeapLayout {
    pub(crate) heaps: u64,
    pub(crate) growable_length: u32,
    pub(crate) growable_data: u32,
    pub(crate) memory: u32,
    pub(crate) segmap: u32,
    pub(crate) log2_segment_size: u32,
    pub(crate) space_low: u32,
    pub(crate) space_high: u32,
    pub(crate) space_low_boundary: u32,
    pub(crate) space_high_boundary: u32,
    pub(crate) block_used: u32,
    pub(crate) block_header: u64,
}

/// Where a blob's instructions begin and end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeBounds {
    /// JDK 11 to 21: two addresses.
    Addresses { begin: u32, end: u32 },
    /// JDK 23 and later: two offsets from the blob.
    Offsets { begin: u32, end: u32 },
}

/// `CodeBlob`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobLayout {
    pub(crate) name: u32,
    pub(crate) size: u32,
    pub(crate) kind: Option<u32>,
    pub(crate) kinds: BlobKindValues,
    pub(crate) frame_complete: SizedField,
    pub(crate) frame_size: u32,
    pub(crate) bounds: CodeBounds,
}

/// Where an nmethod keeps its debug information.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DebugLayout {
    /// JDK 11 to 21: inside the blob.
    InBlob { scopes_data: u32, scopes_pcs: u32, dependencies: u32, metadata: u32 },
    /// JDK 25 and later: in two malloc'ed blocks, one of them for data the GC changes.
    OutOfBlob {
        immutable_data: u32,
        immutable_data_size: u32,
        scopes_data: u32,
        scopes_pcs: u32,
        mutable_data: u32,
        mutable_data_size: u32,
        relocation_size: u32,
    },
}

/// Where an nmethod keeps the address of a handler or entry: JDK 11 to 21 as address, later as offset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodePlace {
    /// An address.
    Address(u32),
    /// An offset from the blob (handlers, 32 bits).
    FromBlob(u32),
    /// An offset from the first instruction (entries, 16 bits).
    FromCode(u32),
}

/// `nmethod` and, up to JDK 21, `CompiledMethod`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NmethodLayout {
    pub(crate) method: u32,
    pub(crate) debug: DebugLayout,
    pub(crate) deopt: CodePlace,
    /// Second handler for method handle call sites, JDK 11 to 25.
    pub(crate) deopt_mh: Option<CodePlace>,
    pub(crate) verified_entry: CodePlace,
    pub(crate) osr_entry: u32,
    pub(crate) orig_pc_offset: u32,
    pub(crate) compile_id: u32,
    pub(crate) comp_level: SizedField,
    pub(crate) pc_desc_size: u64,
    pub(crate) pc_desc_pc_offset: u32,
    pub(crate) pc_desc_scope_offset: u32,
}

/// Where the index of the source file's name is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SourceFileIndex {
    /// JDK 11: in the class.
    Klass(u32),
    /// JDK 17 and later: in the constant pool.
    Pool(u32),
}

/// `Method`, `ConstMethod`, `ConstantPool`, `Klass`, `Symbol`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodLayout {
    pub(crate) const_method: u32,
    pub(crate) access_flags: SizedField,
    /// `Method::_flags`, JDK 11 and 17; later JDKs keep the flags in the `ConstMethod`.
    pub(crate) flags: Option<SizedField>,
    pub(crate) constants: u32,
    pub(crate) const_method_words: u32,
    pub(crate) const_method_flags: SizedField,
    pub(crate) code_size: u32,
    pub(crate) name_index: u32,
    pub(crate) signature_index: u32,
    pub(crate) const_method_header: u64,
    pub(crate) has_line_numbers: u32,
    pub(crate) pool_header: u64,
    pub(crate) pool_holder: u32,
    pub(crate) pool_length: u32,
    pub(crate) source_file: Option<SourceFileIndex>,
    pub(crate) klass_name: u32,
    pub(crate) symbol_length: u32,
    pub(crate) symbol_body: u32,
}

/// Interpreter, stubs and anchors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLayout {
    pub(crate) interpreter_code: u64,
    pub(crate) queue_buffer: u32,
    pub(crate) queue_limit: u32,
    pub(crate) call_stub_return: u64,
    /// Variable with the address of the return barrier, JDK 27 and later.
    pub(crate) continuation_barrier: Option<u64>,
    pub(crate) anchor_sp: u32,
    pub(crate) anchor_pc: u32,
    pub(crate) anchor_fp: u32,
    pub(crate) wrapper_anchor: u32,
    /// Words from fp to the `JavaCallWrapper*` of an entry frame.
    pub(crate) entry_wrapper: i64,
    /// Words from fp to the caller's sp in an interpreter frame.
    pub(crate) interpreter_sender_sp: i64,
}

/// The list of Java threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadListLayout {
    /// JDK 11: the first thread and each thread's successor.
    Chain { head: u64, next: u32 },
    /// JDK 17 and later: a list object.
    List { list: u64, length: u32, array: u32 },
}

/// `JavaThread` and `OSThread`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadLayout {
    pub(crate) anchor: u32,
    pub(crate) state: u32,
    pub(crate) osthread: u32,
    pub(crate) thread_id: u32,
    pub(crate) stack_base: u32,
    pub(crate) stack_size: u32,
    pub(crate) vframe_array_head: u32,
    /// JDK 25.0.3 and later.
    pub(crate) cont_entry: Option<u32>,
    pub(crate) terminated: Option<u32>,
    pub(crate) saved_exception_pc: Option<u32>,
    pub(crate) thread_object: Option<u32>,
    /// JDK 21 and later.
    pub(crate) vthread: Option<u32>,
    pub(crate) list: ThreadListLayout,
    pub(crate) in_java: u32,
    pub(crate) not_terminated: Option<u32>,
}

/// `JVMFlag`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagLayout {
    pub(crate) flags: u64,
    pub(crate) count: u64,
    pub(crate) stride: u64,
    pub(crate) name: u32,
    pub(crate) address: u32,
    pub(crate) bits: u32,
}

/// All offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) code_heap: CodeHeapLayout,
    pub(crate) blob: BlobLayout,
    pub(crate) nmethod: NmethodLayout,
    pub(crate) method: MethodLayout,
    pub(crate) frame: FrameLayout,
    pub(crate) thread: ThreadLayout,
    /// Absent only if the VM hides its flags.
    pub(crate) flag: Option<FlagLayout>,
    pub(crate) vm_major: u64,
}

fn offset(row: Option<FieldRow>) -> Option<u32> {
    match row {
        Some(FieldRow::Instance { offset, .. }) => Some(offset),
        _ => None,
    }
}

fn sized(row: Option<FieldRow>) -> Option<SizedField> {
    match row {
        Some(FieldRow::Instance { offset, width }) if width != 0 => Some(SizedField { offset, width }),
        _ => None,
    }
}

fn variable(row: Option<FieldRow>) -> Option<u64> {
    match row {
        Some(FieldRow::Static { address }) if address != 0 => Some(address),
        _ => None,
    }
}

/// Takes `$what` of the named table field or returns the error that names it.
macro_rules! need {
    ($kind:ident $table:ident . $field:ident) => {
        $kind($table.$field).ok_or(LayoutError::MissingField(stringify!($field)))?
    };
}

impl Layout {
    /// Reads the tables and resolves every field.
    pub(crate) fn read<M: Memory + ?Sized>(symbols: &VmSymbols, memory: &M) -> Result<Self, LayoutError> {
        let mut fields = FieldTable::default();
        visit_fields(symbols, memory, |type_name, field_name, row| fields.put(type_name, field_name, row))?;
        let mut types = TypeTable::default();
        visit_types(symbols, memory, |name, size| {
            let slot = match name {
                "HeapBlock" => &mut types.heap_block,
                "ConstMethod" => &mut types.const_method,
                "ConstantPool" => &mut types.constant_pool,
                "AccessFlags" => &mut types.access_flags,
                "JVMFlag" => &mut types.jvm_flag,
                "PcDesc" => &mut types.pc_desc,
                _ => return,
            };
            *slot = Some(size);
        })?;
        let mut constants = ConstantTable::default();
        visit_ints(symbols, memory, |name, value| constants.put(name, value))?;
        Ok(Self {
            code_heap: code_heap(&fields, &types)?,
            blob: blob(&fields, &constants)?,
            nmethod: nmethod(&fields, &types)?,
            method: method(&fields, &types, &constants)?,
            frame: frame(&fields, &constants)?,
            thread: thread(&fields, &constants)?,
            flag: flag(&fields, &types),
            vm_major: need!(variable fields.vm_major),
        })
    }
}

fn code_heap(fields: &FieldTable, types: &TypeTable) -> Result<CodeHeapLayout, LayoutError> {
    Ok(CodeHeapLayout {
        heaps: need!(variable fields.heaps),
        growable_length: need!(offset fields.growable_length),
        growable_data: need!(offset fields.growable_data),
        memory: need!(offset fields.heap_memory),
        segmap: need!(offset fields.heap_segmap),
        log2_segment_size: need!(offset fields.heap_log2_segment_size),
        space_low: need!(offset fields.space_low),
        space_high: need!(offset fields.space_high),
        space_low_boundary: need!(offset fields.space_low_boundary),
        space_high_boundary: need!(offset fields.space_high_boundary),
        block_used: need!(offset fields.block_used),
        block_header: types.heap_block.ok_or(LayoutError::MissingType("HeapBlock"))?,
    })
}

fn blob(fields: &FieldTable, constants: &ConstantTable) -> Result<BlobLayout, LayoutError> {
    let bounds = match (offset(fields.blob_code_begin), offset(fields.blob_code_end)) {
        (Some(begin), Some(end)) => CodeBounds::Addresses { begin, end },
        _ => CodeBounds::Offsets {
            begin: need!(offset fields.blob_code_offset),
            end: need!(offset fields.blob_data_offset),
        },
    };
    Ok(BlobLayout {
        name: need!(offset fields.blob_name),
        size: need!(offset fields.blob_size),
        kind: offset(fields.blob_kind),
        kinds: constants.kinds,
        frame_complete: need!(sized fields.blob_frame_complete),
        frame_size: need!(offset fields.blob_frame_size),
        bounds,
    })
}

fn nmethod(fields: &FieldTable, types: &TypeTable) -> Result<NmethodLayout, LayoutError> {
    let debug = match offset(fields.nmethod_immutable_data) {
        None => DebugLayout::InBlob {
            scopes_data: need!(offset fields.nmethod_scopes_data_begin),
            scopes_pcs: need!(offset fields.nmethod_scopes_pcs_offset),
            dependencies: need!(offset fields.nmethod_dependencies_offset),
            metadata: need!(offset fields.nmethod_metadata_offset),
        },
        Some(immutable_data) => DebugLayout::OutOfBlob {
            immutable_data,
            immutable_data_size: need!(offset fields.nmethod_immutable_data_size),
            scopes_data: need!(offset fields.nmethod_scopes_data_offset),
            scopes_pcs: need!(offset fields.nmethod_scopes_pcs_offset),
            mutable_data: need!(offset fields.blob_mutable_data),
            mutable_data_size: need!(offset fields.blob_mutable_data_size),
            relocation_size: need!(offset fields.blob_relocation_size),
        },
    };
    let deopt = match offset(fields.nmethod_deopt_begin) {
        Some(at) => CodePlace::Address(at),
        None => CodePlace::FromBlob(need!(offset fields.nmethod_deopt_offset)),
    };
    let deopt_mh = match offset(fields.nmethod_deopt_mh_begin) {
        Some(at) => Some(CodePlace::Address(at)),
        None => offset(fields.nmethod_deopt_mh_offset).map(CodePlace::FromBlob),
    };
    let verified_entry = match offset(fields.nmethod_verified_entry) {
        Some(at) => CodePlace::Address(at),
        None => CodePlace::FromCode(need!(offset fields.nmethod_verified_entry_offset)),
    };
    Ok(NmethodLayout {
        method: need!(offset fields.nmethod_method),
        debug,
        deopt,
        deopt_mh,
        verified_entry,
        osr_entry: need!(offset fields.nmethod_osr_entry),
        orig_pc_offset: need!(offset fields.nmethod_orig_pc_offset),
        compile_id: need!(offset fields.nmethod_compile_id),
        comp_level: need!(sized fields.nmethod_comp_level),
        pc_desc_size: types.pc_desc.ok_or(LayoutError::MissingType("PcDesc"))?,
        pc_desc_pc_offset: need!(offset fields.pc_desc_pc_offset),
        pc_desc_scope_offset: need!(offset fields.pc_desc_scope_offset),
    })
}

fn method(
    fields: &FieldTable,
    types: &TypeTable,
    constants: &ConstantTable,
) -> Result<MethodLayout, LayoutError> {
    let access_flags_width = types.access_flags.and_then(|size| u8::try_from(size).ok());
    Ok(MethodLayout {
        const_method: need!(offset fields.method_const_method),
        access_flags: SizedField {
            offset: need!(offset fields.method_access_flags),
            width: access_flags_width.ok_or(LayoutError::MissingType("AccessFlags"))?,
        },
        flags: sized(fields.method_flags),
        constants: need!(offset fields.const_method_constants),
        const_method_words: need!(offset fields.const_method_size),
        const_method_flags: need!(sized fields.const_method_flags),
        code_size: need!(offset fields.const_method_code_size),
        name_index: need!(offset fields.const_method_name_index),
        signature_index: need!(offset fields.const_method_signature_index),
        const_method_header: types.const_method.ok_or(LayoutError::MissingType("ConstMethod"))?,
        has_line_numbers: constants
            .has_line_numbers
            .ok_or(LayoutError::MissingConstant("has_linenumber_table"))?
            .cast_unsigned(),
        pool_header: types.constant_pool.ok_or(LayoutError::MissingType("ConstantPool"))?,
        pool_holder: need!(offset fields.pool_holder),
        pool_length: need!(offset fields.pool_length),
        source_file: offset(fields.pool_source_file_index)
            .map(SourceFileIndex::Pool)
            .or(offset(fields.klass_source_file_index).map(SourceFileIndex::Klass)),
        klass_name: need!(offset fields.klass_name),
        symbol_length: need!(offset fields.symbol_length),
        symbol_body: need!(offset fields.symbol_body),
    })
}

fn frame(fields: &FieldTable, constants: &ConstantTable) -> Result<FrameLayout, LayoutError> {
    let wrapper = constants.entry_wrapper.ok_or(LayoutError::MissingConstant("entry_frame_call_wrapper_offset"))?;
    let sender_sp =
        constants.sender_sp.ok_or(LayoutError::MissingConstant("interpreter_frame_sender_sp_offset"))?;
    Ok(FrameLayout {
        interpreter_code: need!(variable fields.interpreter_code),
        queue_buffer: need!(offset fields.queue_buffer),
        queue_limit: need!(offset fields.queue_limit),
        call_stub_return: need!(variable fields.call_stub_return),
        continuation_barrier: variable(fields.continuation_barrier),
        anchor_sp: need!(offset fields.anchor_sp),
        anchor_pc: need!(offset fields.anchor_pc),
        anchor_fp: need!(offset fields.anchor_fp),
        wrapper_anchor: need!(offset fields.wrapper_anchor),
        entry_wrapper: i64::from(wrapper),
        interpreter_sender_sp: i64::from(sender_sp),
    })
}

fn thread(fields: &FieldTable, constants: &ConstantTable) -> Result<ThreadLayout, LayoutError> {
    let list = match variable(fields.threads_list) {
        Some(list) => ThreadListLayout::List {
            list,
            length: need!(offset fields.threads_length),
            array: need!(offset fields.threads_array),
        },
        None => ThreadListLayout::Chain {
            head: need!(variable fields.thread_list_head),
            next: need!(offset fields.thread_next),
        },
    };
    Ok(ThreadLayout {
        anchor: need!(offset fields.thread_anchor),
        state: need!(offset fields.thread_state),
        osthread: need!(offset fields.thread_osthread),
        thread_id: need!(offset fields.thread_id),
        stack_base: need!(offset fields.thread_stack_base),
        stack_size: need!(offset fields.thread_stack_size),
        vframe_array_head: need!(offset fields.thread_vframe_array_head),
        cont_entry: offset(fields.thread_cont_entry),
        terminated: offset(fields.thread_terminated),
        saved_exception_pc: offset(fields.thread_saved_exception_pc),
        thread_object: offset(fields.thread_object),
        vthread: offset(fields.thread_vthread),
        list,
        in_java: constants.in_java.ok_or(LayoutError::MissingConstant("_thread_in_Java"))?.cast_unsigned(),
        not_terminated: constants.not_terminated.map(i32::cast_unsigned),
    })
}

fn flag(fields: &FieldTable, types: &TypeTable) -> Option<FlagLayout> {
    Some(FlagLayout {
        flags: variable(fields.flags)?,
        count: variable(fields.flags_count)?,
        stride: types.jvm_flag?,
        name: offset(fields.flag_name)?,
        address: offset(fields.flag_address)?,
        bits: offset(fields.flag_flags)?,
    })
}
