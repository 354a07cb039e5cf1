//! Symbols and segments of the library that contains the VM.
//!
//! Problem: `gHotSpotVMStructs` and its kin are data symbols of libjvm, which the launcher may have loaded privately.
//! Approach: dladdr finds the library that contains a function of the VM; symbols are looked up in it.
//! Sources: dladdr(3), dlopen(3) (RTLD_NOLOAD), dlsym(3), dl_iterate_phdr(3).

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
    base: u64,
    file: PathBuf,
}

impl Library {
    /// Returns its file, and the address of the file's first byte.
    pub fn origin(&self) -> (PathBuf, u64) {
        (self.file.clone(), self.base)
    }

    pub fn containing(address: u64) -> Option<Self> {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `info` is writable; any address may be passed.
        let found = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) };
        if found == 0 {
            return None;
        }
        // SAFETY: zeroed, and filled by the call.
        let info = unsafe { info.assume_init() };
        // SAFETY: dladdr gives the NUL-terminated name of a loaded file.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        let file = Path::new(OsStr::from_bytes(name.to_bytes())).to_owned();
        let already_loaded = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        // SAFETY: dladdr gives the NUL-terminated name of a loaded file; NOLOAD only adds a reference, which we keep.
        let mut handle = unsafe { libc::dlopen(info.dli_fname, already_loaded) };
        if handle.is_null() {
            // The executable, into which a JVM may be linked, has no name that can be opened.
            // SAFETY: null stands for the executable.
            handle = unsafe { libc::dlopen(std::ptr::null(), already_loaded) };
        }
        (!handle.is_null()).then_some(Self { handle, base: info.dli_fbase as u64, file })
    }

    pub fn symbol(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and the name NUL-terminated.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address as u64)
    }

    /// Returns the addresses from its first segment to its last.
    pub fn image(&self) -> Range<u64> {
        let segments = self.segments();
        let [first, .., last] = &*segments else { return 0..0 };
        first.range.start..last.range.end
    }

    /// Returns the library's segments, in ascending order; they stay mapped as long as the handle is open.
    pub fn segments(&self) -> Vec<Segment> {
        self.search().found
    }

    /// Returns the addresses of variables that are read from the file, without constants with relocations.
    pub fn variables(&self) -> Option<Range<u64>> {
        let Search { found, constants_end, .. } = self.search();
        let data = found.into_iter().find(|segment| segment.is_writable)?;
        let end = data.range.start.saturating_add(data.file_bytes).min(data.range.end);
        Some(constants_end.clamp(data.range.start, end)..end)
    }

    fn search(&self) -> Search {
        let mut search = Search { base: self.base, found: Vec::new(), constants_end: 0 };
        // SAFETY: the callback matches and `search` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut search).cast()) };
        search
    }
}

/// Returns how many libraries the loader has mapped and unmapped so far; `None` if it does not count.
pub fn loads() -> Option<u64> {
    let mut loads: Option<u64> = None;
    // SAFETY: the callback matches and `loads` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(count_loads), (&raw mut loads).cast()) };
    loads
}

/// Reads the loader's counts from the first record, all of which have the same.
unsafe extern "C" fn count_loads(info: *mut libc::dl_phdr_info, size: usize, loads: *mut c_void) -> c_int {
    if size > std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs) {
        // SAFETY: the linker passes a valid record, which by its size has both counts.
        let info = unsafe { &*info };
        // SAFETY: `loads` passed a pointer to its variable.
        let loads = unsafe { &mut *loads.cast::<Option<u64>>() };
        *loads = Some(info.dlpi_adds.wrapping_add(info.dlpi_subs));
    }
    1
}

/// A loaded part of a library.
#[derive(Debug, Clone)]
pub struct Segment {
    pub range: Range<u64>,
    /// Bytes that are read from the file; the rest begins as zeros.
    pub file_bytes: u64,
    /// True if the mapping is writable.
    pub is_writable: bool,
}

struct Search {
    base: u64,
    found: Vec<Segment>,
    /// End of the part that the linker makes read-only after it has relocated it, 0 if there is none.
    constants_end: u64,
}

/// Collects the loadable segments of the library whose first segment lies at `base`.
unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the linker passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: `segments` passed a pointer to its `Search`.
    let search = unsafe { &mut *search.cast::<Search>() };
    if info.dlpi_addr != search.base {
        return 0;
    }
    // SAFETY: the record names `dlpi_phnum` program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        let range = start..start.wrapping_add(header.p_memsz);
        match header.p_type {
            libc::PT_LOAD => search.found.push(Segment {
                range,
                file_bytes: header.p_filesz,
                is_writable: header.p_flags & libc::PF_W != 0,
            }),
            libc::PT_GNU_RELRO => search.constants_end = range.end,
            _ => {}
        }
    }
    1
}
