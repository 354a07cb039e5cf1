//! The rows of the VM's tables that are used.
//!
//! Each field is named once, with the names it has in other JDKs; `layout` decides which are needed.
//! Source: `hotspot/share/runtime/vmStructs.cpp` of JDK 11, 17, 21, 25.

use super::layout_error::LayoutError;
use super::vm_structs::{FieldRow, VmSymbols, visit_fields, visit_ints, visit_longs, visit_types};
use crate::memory::Memory;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $(($type_name:literal, $field_name:literal))|+;)*) => {
        /// Every row of the fields table that is used, as found; `None` where this JDK has none.
        #[derive(Clone, Copy, Default)]
        pub(super) struct FieldTable { $($(#[$doc])* pub(super) $name: Option<FieldRow>,)* }

        impl FieldTable {
            /// HotSpot's own names of a row, as `/TYPE::FIELD`, one behind the other.
            pub(super) fn names(row: &str) -> &'static str {
                match row {
                    $(stringify!($name) => concat!($("/", $type_name, "::", $field_name),+),)*
                    _ => "",
                }
            }

            fn put(&mut self, type_name: &str, field_name: &str, find: &dyn Fn() -> Option<FieldRow>) {
                match (type_name, field_name) {
                    $($(($type_name, $field_name))|+ => self.$name = find(),)*
                    _ => {}
                }
            }
        }
    };
}

fields! {
    // Code cache.
    heaps = ("CodeCache", "_heaps");
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
    block_length = ("HeapBlock::Header", "_length");
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
    blob_oop_maps = ("CodeBlob", "_oop_maps");
    oop_maps_count = ("ImmutableOopMapSet", "_count");
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
    nmethod_stub_offset = ("nmethod", "_stub_offset");
    nmethod_orig_pc_offset = ("nmethod", "_orig_pc_offset");
    nmethod_verified_entry = ("nmethod", "_verified_entry_point");
    nmethod_verified_entry_offset = ("nmethod", "_verified_entry_offset");
    nmethod_osr_entry = ("nmethod", "_osr_entry_point");
    nmethod_entry_bci = ("nmethod", "_entry_bci");
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
    klass_constants = ("InstanceKlass", "_constants");
    klass_name = ("Klass", "_name");
    klass_loader_data = ("Klass", "_class_loader_data");
    klass_methods = ("InstanceKlass", "_methods");
    klass_method_ids = ("InstanceKlass", "_methods_jmethod_ids");
    const_method_number = ("ConstMethod", "_method_idnum");
    array_length = ("Array<int>", "_length");
    array_of_methods_data = ("Array<Method*>", "_data");
    loader_graph = ("ClassLoaderDataGraph", "_head");
    loader_next = ("ClassLoaderData", "_next");
    loader_handle = ("ClassLoaderData", "_class_loader");
    loader_own_class = ("ClassLoaderData", "_is_anonymous")
        | ("ClassLoaderData", "_is_unsafe_anonymous")
        | ("ClassLoaderData", "_has_class_mirror_holder");
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
    upcall_frame_data = ("UpcallStub", "_frame_data_offset");
    upcall_anchor = ("UpcallStub::FrameData", "jfa");
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
    compiler_env = ("CompilerThread", "_env");
    compiler_env_task = ("ciEnv", "_task");
    compiler_task_method = ("CompileTask", "_method");
    first_thread = ("Threads", "_thread_list");
    threads_list = ("ThreadsSMRSupport", "_java_thread_list");
    threads_length = ("ThreadsList", "_length");
    threads_array = ("ThreadsList", "_threads");
    // Objects of virtual threads.
    entry_parent = ("ContinuationEntry", "_parent");
    oop_klass = ("oopDesc", "_metadata._klass") | ("oopDesc", "_compressed_klass");
    klass_layout_helper = ("Klass", "_layout_helper");
    class_klass_offset = ("java_lang_Class", "_klass_offset");
    narrow_oop_base = ("CompressedOops", "_narrow_oop._base") | ("CompressedOops", "_base");
    narrow_oop_shift = ("CompressedOops", "_narrow_oop._shift") | ("CompressedOops", "_shift");
    narrow_klass_base = ("CompressedKlassPointers", "_narrow_klass._base") | ("CompressedKlassPointers", "_base");
    narrow_klass_shift = ("CompressedKlassPointers", "_narrow_klass._shift") | ("CompressedKlassPointers", "_shift");
    heap = ("Universe", "_collectedHeap");
    heap_reserved = ("CollectedHeap", "_reserved");
    heap_collections = ("CollectedHeap", "_total_collections");
    heap_gc_active = ("CollectedHeap", "_is_gc_active") | ("CollectedHeap", "_is_stw_gc_active");
    region_start = ("MemRegion", "_start");
    region_words = ("MemRegion", "_word_size");
    // Memory that each collector has committed.
    serial_young = ("GenCollectedHeap", "_young_gen") | ("SerialHeap", "_young_gen");
    serial_old = ("GenCollectedHeap", "_old_gen") | ("SerialHeap", "_old_gen");
    serial_space = ("Generation", "_virtual_space");
    parallel_young = ("ParallelScavengeHeap", "_young_gen");
    parallel_old = ("ParallelScavengeHeap", "_old_gen");
    parallel_young_space = ("PSYoungGen", "_virtual_space");
    parallel_old_space = ("PSOldGen", "_virtual_space");
    parallel_low = ("PSVirtualSpace", "_committed_low_addr");
    parallel_high = ("PSVirtualSpace", "_committed_high_addr");
    g1_regions = ("G1CollectedHeap", "_hrm");
    g1_table = ("HeapRegionManager", "_regions") | ("G1HeapRegionManager", "_regions");
    g1_table_base = ("G1HeapRegionTable", "_base");
    g1_table_length = ("G1HeapRegionTable", "_length");
    g1_table_shift = ("G1HeapRegionTable", "_shift_by");
    g1_region_bottom = ("HeapRegion", "_bottom") | ("G1HeapRegion", "_bottom");
    g1_region_type = ("HeapRegion", "_type") | ("G1HeapRegion", "_type");
    g1_type_tag = ("HeapRegionType", "_tag") | ("G1HeapRegionType", "_tag");
    shenandoah_regions = ("ShenandoahHeap", "_regions");
    shenandoah_region_count = ("ShenandoahHeap", "_num_regions");
    shenandoah_region_shift = ("ShenandoahHeapRegion", "RegionSizeBytesShift");
    shenandoah_region_bottom = ("ShenandoahHeapRegion", "_bottom");
    shenandoah_region_state = ("ShenandoahHeapRegion", "_state");
    z_heap = ("ZCollectedHeap", "_heap");
    z_page_table = ("ZHeap", "_page_table");
    z_table_map = ("ZPageTable", "_map");
    z_map_entries = ("ZGranuleMapForPageTable", "_map");
    x_heap = ("XCollectedHeap", "_heap");
    x_page_table = ("XHeap", "_page_table");
    x_table_map = ("XPageTable", "_map");
    x_map_entries = ("XGranuleMapForPageTable", "_map");
    // Colours of references: ZGC with and without generations.
    colours = ("ZGlobalsForVMStructs", "_instance_p");
    colours_offset_mask = ("ZGlobalsForVMStructs", "_ZAddressOffsetMask");
    colours_load_good = ("ZGlobalsForVMStructs", "_ZPointerLoadGoodMask");
    colours_load_bad = ("ZGlobalsForVMStructs", "_ZPointerLoadBadMask");
    colours_mark_bad = ("ZGlobalsForVMStructs", "_ZPointerMarkBadMask");
    colours_store_good = ("ZGlobalsForVMStructs", "_ZPointerStoreGoodMask");
    colours_store_bad = ("ZGlobalsForVMStructs", "_ZPointerStoreBadMask");
    colours_shift = ("ZGlobalsForVMStructs", "_ZPointerLoadShift");
    address_colours = ("XGlobalsForVMStructs", "_instance_p");
    address_colours_offset_mask = ("XGlobalsForVMStructs", "_XAddressOffsetMask");
    address_colours_metadata = ("XGlobalsForVMStructs", "_XAddressMetadataMask");
    address_colours_good = ("XGlobalsForVMStructs", "_XAddressGoodMask");
    address_colours_bad = ("XGlobalsForVMStructs", "_XAddressBadMask");
    // VM.
    vm_major = ("Abstract_VM_Version", "_vm_major_version");
    flags = ("JVMFlag", "flags");
    flags_count = ("JVMFlag", "numFlags");
    flag_name = ("JVMFlag", "_name");
    flag_address = ("JVMFlag", "_addr");
    flag_flags = ("JVMFlag", "_flags");
    // Performance counters.
    perf_start = ("PerfMemory", "_start");
    perf_end = ("PerfMemory", "_end");
    perf_initialized = ("PerfMemory", "_initialized");
    perf_magic = ("PerfDataPrologue", "magic");
    perf_first_entry = ("PerfDataPrologue", "entry_offset");
    perf_entries = ("PerfDataPrologue", "num_entries");
    perf_entry_length = ("PerfDataEntry", "entry_length");
    perf_entry_name = ("PerfDataEntry", "name_offset");
    perf_entry_vector = ("PerfDataEntry", "vector_length");
    perf_entry_type = ("PerfDataEntry", "data_type");
    perf_entry_data = ("PerfDataEntry", "data_offset");
    // Archive of classes (CDS): JDK 17 and later, with another name from 26 on.
    archive_base = ("MetaspaceObj", "_shared_metaspace_base") | ("MetaspaceObj", "_aot_metaspace_base");
    archive_top = ("MetaspaceObj", "_shared_metaspace_top") | ("MetaspaceObj", "_aot_metaspace_top");
}

macro_rules! numbers {
    ($($(#[$outer:meta])* $table:ident: $kind:ty { $($(#[$doc:meta])* $field:ident = $($name:literal)|+;)* })*) => {$(
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub(crate) struct $table { $($(#[$doc])* pub(crate) $field: Option<$kind>,)* }

        impl $table {
            fn put(&mut self, name: &str, value: $kind) {
                match name {
                    $($($name)|+ => self.$field = Some(value),)*
                    _ => {}
                }
            }
        }
    )*};
}

numbers! {
    /// Sizes of C++ types that are used.
    TypeTable: u64 {
        heap_block = "HeapBlock";
        const_method = "ConstMethod";
        constant_pool = "ConstantPool";
        access_flags = "AccessFlags";
        jvm_flag = "JVMFlag";
        pc_desc = "PcDesc";
    }

    /// Integer constants that are used.
    ConstantTable: i32 {
        in_java = "_thread_in_Java";
        not_terminated = "JavaThread::_not_terminated";
        has_line_numbers = "ConstMethod::_has_linenumber_table" | "ConstMethodFlags::_misc_has_linenumber_table";
        entry_wrapper = "frame::entry_frame_call_wrapper_offset";
        sender_sp = "frame::interpreter_frame_sender_sp_offset";
        /// Present in VMs with value classes: JDK 28 and later.
        value_class = "Klass::KlassKind::ValueKlassKind";
    }

    /// `CodeBlobKind` values; JDK 24 and later, renumbered in 28.
    BlobKindValues: i32 {
        nmethod = "CodeBlobKind::Nmethod";
        /// Interpreter, routines and other code that the VM has assembled in one piece.
        buffer = "CodeBlobKind::Buffer";
        adapter = "CodeBlobKind::Adapter";
        vtable = "CodeBlobKind::Vtable";
        method_handle_adapter = "CodeBlobKind::MHAdapter";
        runtime_stub = "CodeBlobKind::RuntimeStub";
        deoptimization = "CodeBlobKind::Deoptimization";
        safepoint = "CodeBlobKind::Safepoint";
        exception = "CodeBlobKind::Exception";
        uncommon_trap = "CodeBlobKind::UncommonTrap";
        upcall = "CodeBlobKind::Upcall";
    }

    /// Numbers of bits that are used, from the table of 64-bit constants.
    ShiftTable: u32 {
        /// The class in an object's mark word, with compact headers.
        mark_klass = "markWord::klass_shift";
        /// log2 of the bytes of a granule: ZGC with and without generations.
        z_granule = "ZGranuleSizeShift";
        x_granule = "XGranuleSizeShift";
    }
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) fields: FieldTable,
    pub(super) types: TypeTable,
    pub(super) constants: ConstantTable,
    pub(super) kinds: BlobKindValues,
    pub(super) shifts: ShiftTable,
}

impl Tables {
    pub(super) fn read<M: Memory + ?Sized>(symbols: &VmSymbols, memory: &M) -> Result<Self, LayoutError> {
        let mut tables = Self::default();
        let Self { fields, types, constants, kinds, shifts } = &mut tables;
        visit_fields(symbols, memory, |type_name, field_name, row| fields.put(type_name, field_name, row))?;
        visit_types(symbols, memory, |name, size| types.put(name, size))?;
        visit_ints(symbols, memory, |name, value| {
            constants.put(name, value);
            kinds.put(name, value);
        })?;
        visit_longs(symbols, memory, |name, value| {
            if let Ok(value) = u32::try_from(value) {
                shifts.put(name, value);
            }
        })?;
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn a_missing_field_has_its_names_in_hotspot() {
        let text = |row| LayoutError::MissingField(FieldTable::names(row)).to_string();
        assert_eq!(text("blob_size"), "the VM's tables lack the field CodeBlob::_size");
        let both = "the VM's tables lack the field CompiledMethod::_method or nmethod::_method";
        assert_eq!(text("nmethod_method"), both);
    }
}
