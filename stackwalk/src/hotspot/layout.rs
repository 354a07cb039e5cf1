//! Offsets of every VM field the walker uses, resolved once from the tables.
//!
//! The rows are in `rows`; this file gives each a meaning and a type.
//! A field that some supported JDK lacks is an `Option`; its comment names the JDKs that have it.
//! Field names: `hotspot/share/runtime/vmStructs.cpp` of JDK 11, 17, 21, 25.

use super::heap_layout::{AddressColourLayout, HeapLayout, ShiftedColourLayout};
use super::layout_error::LayoutError;
use super::offsets::{SizedField, constant, layouts, need, size, sized};
use super::rows::{BlobKindValues, FieldTable, Tables};
use super::vm_structs::{VmSymbols, offset, variable};
use crate::cpu::{ENTRY_WRAPPER, INTERPRETER_SENDER_SP};
use crate::memory::Memory;

layouts! { |tables|
    /// `CodeCache`, `CodeHeap`, `HeapBlock`.
    CodeHeapLayout {
        heaps: variable(heaps),
        growable_length: offset(growable_length),
        growable_data: offset(growable_data),
        memory: offset(heap_memory),
        segmap: offset(heap_segmap),
        log2_segment_size: offset(heap_log2_segment_size),
        space_low: offset(space_low),
        space_high: offset(space_high),
        space_low_boundary: offset(space_low_boundary),
        space_high_boundary: offset(space_high_boundary),
        block_used: offset(block_used),
        block_header: made(u64, size(tables.types.heap_block, "HeapBlock")?),
    }

    /// `CodeBlob`.
    BlobLayout {
        name: offset(blob_name),
        size: offset(blob_size),
        kind: find_offset(blob_kind),
        kinds: made(BlobKindValues, tables.kinds),
        frame_complete: sized(blob_frame_complete),
        frame_size: offset(blob_frame_size),
        bounds: made(CodeBounds, CodeBounds::resolve(tables)?),
    }

    /// `nmethod` and, up to JDK 21, `CompiledMethod`.
    NmethodLayout {
        method: offset(nmethod_method),
        debug: made(DebugLayout, DebugLayout::resolve(tables)?),
        deopt: made(CodePlace, match offset(tables.fields.nmethod_deopt_begin) {
            Some(at) => CodePlace::Address(at),
            None => CodePlace::FromBlob(need!(offset tables.nmethod_deopt_offset)),
        }),
        /// Second handler for method handle call sites, JDK 11 to 25.
        deopt_mh: made(Option<CodePlace>, match offset(tables.fields.nmethod_deopt_mh_begin) {
            Some(at) => Some(CodePlace::Address(at)),
            None => offset(tables.fields.nmethod_deopt_mh_offset).map(CodePlace::FromBlob),
        }),
        verified_entry: made(CodePlace, match offset(tables.fields.nmethod_verified_entry) {
            Some(at) => CodePlace::Address(at),
            None => CodePlace::FromCode(need!(offset tables.nmethod_verified_entry_offset)),
        }),
        osr_entry: offset(nmethod_osr_entry),
        /// From the blob to the stubs behind its main code.
        stubs: find_offset(nmethod_stub_offset),
        /// Bytecode at which the code begins, -1 if it is the method's first.
        entry_bci: offset(nmethod_entry_bci),
        orig_pc_offset: offset(nmethod_orig_pc_offset),
        compile_id: offset(nmethod_compile_id),
        comp_level: sized(nmethod_comp_level),
        /// True in VMs with value classes, JDK 28 and later: methods may have several entries, and frames that keep
        /// their size.
        has_value_classes: made(bool, tables.constants.value_class.is_some()),
        pc_desc_size: made(u64, size(tables.types.pc_desc, "PcDesc")?),
        pc_desc_pc_offset: offset(pc_desc_pc_offset),
        pc_desc_scope_offset: offset(pc_desc_scope_offset),
        /// `CodeBlob`'s `ImmutableOopMapSet`, and the number of maps in one.
        oop_maps: find_offset(blob_oop_maps),
        oop_maps_count: find_offset(oop_maps_count),
    }

    /// `Method`, `ConstMethod`, `ConstantPool`, `Klass`, `Symbol`.
    MethodLayout {
        const_method: offset(method_const_method),
        access_flags: made(SizedField, SizedField {
            offset: need!(offset tables.method_access_flags),
            width: u8::try_from(size(tables.types.access_flags, "AccessFlags")?)
                .map_err(|_| LayoutError::MissingType("AccessFlags"))?,
        }),
        /// `Method::_flags`, JDK 11 and 17; later JDKs keep the flags in the `ConstMethod`.
        flags: find_sized(method_flags),
        constants: offset(const_method_constants),
        const_method_words: offset(const_method_size),
        const_method_flags: sized(const_method_flags),
        code_size: offset(const_method_code_size),
        name_index: offset(const_method_name_index),
        signature_index: offset(const_method_signature_index),
        const_method_header: made(u64, size(tables.types.const_method, "ConstMethod")?),
        has_line_numbers: made(u32, {
            constant(tables.constants.has_line_numbers, "ConstMethod::_has_linenumber_table")?.cast_unsigned()
        }),
        pool_header: made(u64, size(tables.types.constant_pool, "ConstantPool")?),
        pool_holder: offset(pool_holder),
        pool_length: offset(pool_length),
        source_file: made(Option<SourceFileIndex>, {
            offset(tables.fields.pool_source_file_index)
                .map(SourceFileIndex::Pool)
                .or(offset(tables.fields.klass_source_file_index).map(SourceFileIndex::Klass))
        }),
        klass_constants: find_offset(klass_constants),
        klass_name: offset(klass_name),
        symbol_length: offset(symbol_length),
        symbol_body: offset(symbol_body),
    }

    /// Interpreter, stubs and anchors.
    FrameLayout {
        interpreter_code: variable(interpreter_code),
        queue_buffer: offset(queue_buffer),
        queue_limit: offset(queue_limit),
        call_stub_return: variable(call_stub_return),
        /// Variable with the address of the return barrier, JDK 27 and later.
        continuation_barrier: find_variable(continuation_barrier),
        anchor_sp: offset(anchor_sp),
        anchor_pc: offset(anchor_pc),
        anchor_fp: offset(anchor_fp),
        wrapper_anchor: offset(wrapper_anchor),
        /// Field of an `UpcallStub` with the distance from sp to its `FrameData`; JDK 25 and later.
        upcall_frame_data: find_offset(upcall_frame_data),
        /// The anchor in a `FrameData`; where the tables lack it, it is the first member (`code/codeBlob.hpp`, JDK 21).
        upcall_anchor: find_offset(upcall_anchor),
        /// Words from fp to the `JavaCallWrapper*` of an entry frame.
        entry_wrapper: made(i64, {
            let known = tables.constants.entry_wrapper.or(ENTRY_WRAPPER);
            i64::from(constant(known, "frame::entry_frame_call_wrapper_offset")?)
        }),
        /// Words from fp to the caller's sp in an interpreter frame.
        interpreter_sender_sp: made(i64, {
            tables.constants.sender_sp.map_or(INTERPRETER_SENDER_SP, i64::from)
        }),
    }

    /// From a `CompilerThread` to the method it compiles; in the tables of every JDK from 11 to 25.
    CompilerLayout {
        env: offset(compiler_env),
        task: offset(compiler_env_task),
        method: offset(compiler_task_method),
    }

    /// `JavaThread` and `OSThread`.
    ThreadLayout {
        anchor: offset(thread_anchor),
        state: offset(thread_state),
        osthread: offset(thread_osthread),
        thread_id: offset(thread_id),
        stack_base: offset(thread_stack_base),
        stack_size: offset(thread_stack_size),
        vframe_array_head: offset(thread_vframe_array_head),
        /// JDK 25.0.3 and later.
        cont_entry: find_offset(thread_cont_entry),
        terminated: find_offset(thread_terminated),
        saved_exception_pc: find_offset(thread_saved_exception_pc),
        thread_object: find_offset(thread_object),
        /// JDK 21 and later.
        vthread: find_offset(thread_vthread),
        compiler: made(Option<CompilerLayout>, CompilerLayout::resolve(tables).ok()),
        list: made(ThreadListLayout, ThreadListLayout::resolve(tables)?),
        in_java: made(u32, constant(tables.constants.in_java, "_thread_in_Java")?.cast_unsigned()),
        not_terminated: made(Option<u32>, tables.constants.not_terminated.map(i32::cast_unsigned)),
    }

    /// Objects of virtual threads: `ContinuationEntry`, `oopDesc`, `Klass`, compressed references, the heap.
    ///
    /// None of these is needed to walk platform threads.
    ContinuationLayout {
        block_length: find_sized(block_length),
        entry_parent: find_offset(entry_parent),
        oop_klass: find_offset(oop_klass),
        layout_helper: find_offset(klass_layout_helper),
        class_klass: find_variable(class_klass_offset),
        oop_base: find_variable(narrow_oop_base),
        oop_shift: find_variable(narrow_oop_shift),
        klass_base: find_variable(narrow_klass_base),
        klass_shift: find_variable(narrow_klass_shift),
        heap: find_variable(heap),
        reserved: find_offset(heap_reserved),
        collections: find_offset(heap_collections),
        gc_active: find_offset(heap_gc_active),
        region_start: find_offset(region_start),
        region_words: find_offset(region_words),
        mark_klass_shift: made(Option<u32>, tables.shifts.mark_klass),
    }

    /// `JVMFlag`.
    FlagLayout {
        flags: variable(flags),
        count: variable(flags_count),
        stride: made(u64, size(tables.types.jvm_flag, "JVMFlag")?),
        name: offset(flag_name),
        address: offset(flag_address),
        bits: offset(flag_flags),
    }

    /// `PerfMemory`, `PerfDataPrologue`, `PerfDataEntry`.
    PerfLayout {
        start: variable(perf_start),
        end: variable(perf_end),
        initialized: variable(perf_initialized),
        magic: offset(perf_magic),
        first_entry: offset(perf_first_entry),
        entries: offset(perf_entries),
        entry_length: offset(perf_entry_length),
        entry_name: offset(perf_entry_name),
        entry_vector: offset(perf_entry_vector),
        entry_type: offset(perf_entry_type),
        entry_data: offset(perf_entry_data),
    }

    /// Bounds of the archive of classes.
    ArchiveLayout {
        base: variable(archive_base),
        top: variable(archive_top),
    }

    /// `Klass::_class_loader_data` and `ClassLoaderData`.
    LoaderLayout {
        klass_loader_data: offset(klass_loader_data),
        loader_handle: offset(loader_handle),
        /// True if the data belongs to one hidden class: `_is_anonymous` in JDK 11.
        own_class: offset(loader_own_class),
    }

    /// Numbers and ids of methods, and the lists of what is loaded; none is needed to walk.
    MetadataLayout {
        method_number: find_offset(const_method_number),
        method_ids: find_offset(klass_method_ids),
        methods: find_offset(klass_methods),
        array_length: find_offset(array_length),
        methods_data: find_offset(array_of_methods_data),
        loader_data: find_offset(klass_loader_data),
        loader_graph: find_variable(loader_graph),
        loader_next: find_offset(loader_next),
    }

    Layout {
        metadata: made(MetadataLayout, MetadataLayout::resolve(tables)?),
        code_heap: made(CodeHeapLayout, CodeHeapLayout::resolve(tables)?),
        blob: made(BlobLayout, BlobLayout::resolve(tables)?),
        nmethod: made(NmethodLayout, NmethodLayout::resolve(tables)?),
        method: made(MethodLayout, MethodLayout::resolve(tables)?),
        frame: made(FrameLayout, FrameLayout::resolve(tables)?),
        thread: made(ThreadLayout, ThreadLayout::resolve(tables)?),
        continuation: made(ContinuationLayout, ContinuationLayout::resolve(tables)?),
        shifted_colours: made(Option<ShiftedColourLayout>, ShiftedColourLayout::resolve(tables).ok()),
        colours_in_addresses: made(Option<AddressColourLayout>, AddressColourLayout::resolve(tables).ok()),
        heap: made(HeapLayout, HeapLayout::resolve(tables)?),
        /// `None` if the VM hides its flags.
        flag: made(Option<FlagLayout>, FlagLayout::resolve(tables).ok()),
        perf: made(Option<PerfLayout>, PerfLayout::resolve(tables).ok()),
        archive: made(Option<ArchiveLayout>, ArchiveLayout::resolve(tables).ok()),
        loader: made(Option<LoaderLayout>, LoaderLayout::resolve(tables).ok()),
        vm_major: variable(vm_major),
    }
}

impl Layout {
    /// Reads the tables and resolves every field.
    pub(crate) fn read<M: Memory + ?Sized>(symbols: &VmSymbols, memory: &M) -> Result<Self, LayoutError> {
        Self::resolve(&Tables::read(symbols, memory)?)
    }
}

/// Bounds of a blob's instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeBounds {
    /// JDK 11 to 21: two addresses.
    Addresses { begin: u32, end: u32 },
    /// JDK 23 and later: two offsets from the blob.
    Offsets { begin: u32, end: u32 },
}

impl CodeBounds {
    fn resolve(tables: &Tables) -> Result<Self, LayoutError> {
        Ok(match (offset(tables.fields.blob_code_begin), offset(tables.fields.blob_code_end)) {
            (Some(begin), Some(end)) => Self::Addresses { begin, end },
            _ => Self::Offsets {
                begin: need!(offset tables.blob_code_offset),
                end: need!(offset tables.blob_data_offset),
            },
        })
    }
}

/// Place of an nmethod's debug information.
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

impl DebugLayout {
    fn resolve(tables: &Tables) -> Result<Self, LayoutError> {
        Ok(match offset(tables.fields.nmethod_immutable_data) {
            None => Self::InBlob {
                scopes_data: need!(offset tables.nmethod_scopes_data_begin),
                scopes_pcs: need!(offset tables.nmethod_scopes_pcs_offset),
                dependencies: need!(offset tables.nmethod_dependencies_offset),
                metadata: need!(offset tables.nmethod_metadata_offset),
            },
            Some(immutable_data) => Self::OutOfBlob {
                immutable_data,
                immutable_data_size: need!(offset tables.nmethod_immutable_data_size),
                scopes_data: need!(offset tables.nmethod_scopes_data_offset),
                scopes_pcs: need!(offset tables.nmethod_scopes_pcs_offset),
                mutable_data: need!(offset tables.blob_mutable_data),
                mutable_data_size: need!(offset tables.blob_mutable_data_size),
                relocation_size: need!(offset tables.blob_relocation_size),
            },
        })
    }
}

/// Address of a handler or entry of an nmethod: JDK 11 to 21 as address, later as offset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodePlace {
    Address(u32),
    /// An offset from the blob (handlers, 32 bits).
    FromBlob(u32),
    /// An offset from the first instruction (entries, 16 bits).
    FromCode(u32),
}

/// Place of the index of the source file's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SourceFileIndex {
    /// JDK 11: in the class.
    Klass(u32),
    /// JDK 17 and later: in the constant pool.
    Pool(u32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadListLayout {
    /// JDK 11: the first thread and each thread's successor.
    Chain { first: u64, next: u32 },
    /// JDK 17 and later: a list object.
    List { list: u64, length: u32, array: u32 },
}

impl ThreadListLayout {
    fn resolve(tables: &Tables) -> Result<Self, LayoutError> {
        Ok(match variable(tables.fields.threads_list) {
            Some(list) => Self::List {
                list,
                length: need!(offset tables.threads_length),
                array: need!(offset tables.threads_array),
            },
            None => Self::Chain {
                first: need!(variable tables.first_thread),
                next: need!(offset tables.thread_next),
            },
        })
    }
}
