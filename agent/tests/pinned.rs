//! The library stays mapped after its last user has closed it: a timer's signal may still be queued for its handler.

use std::ffi::CString;

#[test]
fn closing_does_not_unload() {
    // Cargo puts the library beside the tests of its package.
    let test = std::env::current_exe().expect("this test's path");
    let library = test.with_file_name("libtickwalk.so");
    let path = CString::new(library.to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: the library runs no code when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{} cannot be loaded", library.display());
    // SAFETY: the handle is open, and nothing of the library is used.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    // SAFETY: as above; nothing is loaded.
    let still_there = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    assert!(!still_there.is_null(), "the library was unloaded");
}
