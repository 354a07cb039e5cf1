//! Offsets of every VM field the walker uses, resolved once from the tables.
//!
//! Two builds of the same JDK release differ in offsets, and releases differ in field names, widths and owners,
//! so nothing here is a number: a field is named, found or not found, and its width comes from its C++ type.
//! The rows looked for are in `rows`; this file gives each a meaning and a type.
//! A field that some supported JDK lacks is an `Option` in [`Layout`]; the note names the JDKs that have it.
//! Field names: `hotspot/share/runtime/vmStructs.cpp` of JDK 11, 17, 21, 25.

use super::LayoutError;
use super::class_loader::LoaderLayout;
use super::continuation::ContinuationLayout;
use super::perf_memory::PerfLayout;
use super::rows::{BlobKindValues, ConstantTable, FieldTable, TypeTable};
use super::vm_structs::{FieldRow, VmSymbols};
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
    pub(crate) klass_constants: Option<u32>,
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

/// From a `CompilerThread` to the method it compiles; in the tables of every JDK from 11 to 25.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompilerLayout {
    pub(crate) env: u32,
    pub(crate) task: u32,
    pub(crate) method: u32,
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
    pub(crate) compiler: Option<CompilerLayout>,
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
    pub(crate) continuation: ContinuationLayout,
    /// Absent only if the VM hides its flags.
    pub(crate) flag: Option<FlagLayout>,
    pub(crate) perf: Option<PerfLayout>,
    pub(crate) loader: Option<LoaderLayout>,
    pub(crate) vm_major: u64,
}

pub(super) fn offset(row: Option<FieldRow>) -> Option<u32> {
    match row {
        Some(FieldRow::Instance { offset, .. }) => Some(offset),
        _ => None,
    }
}

pub(super) fn sized(row: Option<FieldRow>) -> Option<SizedField> {
    match row {
        Some(FieldRow::Instance { offset, width }) if width != 0 => Some(SizedField { offset, width }),
        _ => None,
    }
}

pub(super) fn variable(row: Option<FieldRow>) -> Option<u64> {
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
        let fields = FieldTable::read(symbols, memory)?;
        let types = TypeTable::read(symbols, memory)?;
        let constants = ConstantTable::read(symbols, memory)?;
        Ok(Self {
            code_heap: code_heap(&fields, &types)?,
            blob: blob(&fields, &constants)?,
            nmethod: nmethod(&fields, &types)?,
            method: method(&fields, &types, &constants)?,
            frame: frame(&fields, &constants)?,
            thread: thread(&fields, &constants)?,
            continuation: ContinuationLayout::resolve(&fields, &constants),
            flag: flag(&fields, &types),
            perf: PerfLayout::of(&fields),
            loader: LoaderLayout::of(&fields),
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
        klass_constants: offset(fields.klass_constants),
        klass_name: need!(offset fields.klass_name),
        symbol_length: need!(offset fields.symbol_length),
        symbol_body: need!(offset fields.symbol_body),
    })
}

fn frame(fields: &FieldTable, constants: &ConstantTable) -> Result<FrameLayout, LayoutError> {
    let wrapper =
        constants.entry_wrapper.ok_or(LayoutError::MissingConstant("entry_frame_call_wrapper_offset"))?;
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
        compiler: compiler(fields),
        list,
        in_java: constants.in_java.ok_or(LayoutError::MissingConstant("_thread_in_Java"))?.cast_unsigned(),
        not_terminated: constants.not_terminated.map(i32::cast_unsigned),
    })
}

fn compiler(fields: &FieldTable) -> Option<CompilerLayout> {
    Some(CompilerLayout {
        env: offset(fields.compiler_env)?,
        task: offset(fields.compiler_env_task)?,
        method: offset(fields.compiler_task_method)?,
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
