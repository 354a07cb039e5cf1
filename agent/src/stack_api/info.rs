//! The iterator generation: methods and classes (`agent/include/iterator/profile2.h`).
//!
//! Invariant: addresses from clients are read only by checked reads, and used only if they are in the VM's own lists
//! (`HotSpot::is_loaded`, `HotSpot::is_declared`).

use core::ffi::{c_char, c_void};

use stackwalk::{Bci, Class, Method, Symbol};

use super::api::{Api, api};
use crate::handler::errno::KeptErrno;

/// `ASGST_MethodInfo`.
#[repr(C)]
pub struct MethodInfo {
    class: u64,
    method_name: *mut c_char,
    method_name_length: i32,
    signature: *mut c_char,
    signature_length: i32,
    generic_signature: *mut c_char,
    generic_signature_length: i32,
    modifiers: i32,
    number: i32,
    class_number: i64,
}

/// `ASGST_ClassInfo`.
#[repr(C)]
pub struct ClassInfo {
    class_name: *mut c_char,
    class_name_length: i32,
    generic_class_name: *mut c_char,
    generic_class_name_length: i32,
    modifiers: i32,
    number: i64,
}

/// `ASGST_MethodLineNumberEntry`.
#[repr(C)]
pub struct LineEntry {
    start_bci: i32,
    line: i32,
}

const _: () = assert!(size_of::<MethodInfo>() == 72 && core::mem::offset_of!(MethodInfo, modifiers) == 52);
const _: () = assert!(size_of::<ClassInfo>() == 40 && size_of::<LineEntry>() == 8);

/// Returns a method in the VM's lists, with its class.
fn declared(api: &Api, method: u64) -> Option<(Method, Class)> {
    let method = Method(method);
    let class = api.hotspot.class_of(api.memory, method).ok()?;
    let is_valid =
        api.hotspot.is_loaded(api.memory, class) && api.hotspot.is_declared(api.memory, class, method);
    is_valid.then_some((method, class))
}

/// Returns what `read` finds for a method that a client passes; keeps errno.
fn of_method<T>(method: u64, read: impl FnOnce(&Api, Method, Class) -> Option<T>) -> Option<T> {
    let _errno = KeptErrno::new();
    let api = api()?;
    let (method, class) = declared(api, method)?;
    read(api, method, class)
}

/// Returns a class in the VM's lists, with its name.
fn loaded(api: &Api, class: u64) -> Option<(Class, Symbol)> {
    let class = Class(class);
    if !api.hotspot.is_loaded(api.memory, class) {
        return None;
    }
    let name = api.hotspot.class_name(api.memory, class).ok()?;
    Some((class, name))
}

/// Returns the number of a class: its address, which no other loaded class has.
fn number_of(class: Class) -> i64 {
    class.0.cast_signed()
}

/// Copies a text, or an empty one, to a client's buffer of `capacity` bytes; returns the length of the whole text.
///
/// # Safety
/// `buffer` is null or writable for `capacity` bytes.
unsafe fn copy(api: &Api, symbol: Option<Symbol>, buffer: *mut c_char, capacity: i32) -> i32 {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    let Some(room) = capacity.checked_sub(1).filter(|_| !buffer.is_null()) else { return 0 };
    // SAFETY: the buffer is writable for `capacity` bytes.
    unsafe { core::ptr::write_bytes(buffer, 0, capacity) };
    let Some(symbol) = symbol.filter(|_| room > 0) else { return 0 };
    // SAFETY: writable, and initialised just above.
    let into = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<u8>(), room) };
    match api.hotspot.read_symbol(api.memory, symbol, into) {
        Ok(length) => i32::try_from(length).unwrap_or(i32::MAX),
        Err(_) => {
            into.fill(0);
            0
        }
    }
}

/// Fills `info` with the names of a method. Signal safe.
///
/// # Safety
/// `info` is null or valid, and its buffers are null or writable for their lengths.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_GetMethodInfo(method: u64, info: *mut MethodInfo) {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the client's record.
    let (Some(info), Some(api)) = (unsafe { info.as_mut() }, api()) else { return };
    let found = declared(api, method);
    let names = found.and_then(|(method, _)| api.hotspot.method(api.memory, method).ok());
    (info.class, info.modifiers, info.number, info.class_number) = (0, 0, 0, 0);
    if let (Some((method, class)), Some(names)) = (found, names) {
        info.class = class.0;
        info.modifiers = i32::from(names.modifiers);
        info.number = i32::from(api.hotspot.method_number(api.memory, method).ok().flatten().unwrap_or(0));
        info.class_number = number_of(class);
    }
    let (name, signature) = (names.map(|names| names.name), names.map(|names| names.signature));
    // SAFETY: the record's buffer is null or writable for its length.
    info.method_name_length = unsafe { copy(api, name, info.method_name, info.method_name_length) };
    // SAFETY: the record's buffer is null or writable for its length.
    info.signature_length = unsafe { copy(api, signature, info.signature, info.signature_length) };
    // SAFETY: the record's buffer is null or writable for its length.
    let length = unsafe { copy(api, None, info.generic_signature, info.generic_signature_length) };
    info.generic_signature_length = length;
}

/// Fills `info` with the name of a class. Signal safe.
///
/// # Safety
/// As [`ASGST_GetMethodInfo`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_GetClassInfo(class: u64, info: *mut ClassInfo) {
    let _errno = KeptErrno::new();
    // SAFETY: null, or the client's record.
    let (Some(info), Some(api)) = (unsafe { info.as_mut() }, api()) else { return };
    let found = loaded(api, class);
    info.modifiers = 0;
    info.number = found.map_or(0, |(class, _)| number_of(class));
    let name = found.map(|(_, name)| name);
    // SAFETY: the record's buffer is null or writable for its length.
    info.class_name_length = unsafe { copy(api, name, info.class_name, info.class_name_length) };
    // SAFETY: the record's buffer is null or writable for its length.
    let length = unsafe { copy(api, None, info.generic_class_name, info.generic_class_name_length) };
    info.generic_class_name_length = length;
}

/// Returns the number of a method in its class, or 0. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_GetMethodIdNum(method: u64) -> i32 {
    of_method(method, |api, method, _| api.hotspot.method_number(api.memory, method).ok()?)
        .map_or(0, i32::from)
}

/// Returns the class of a method, or null. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_GetClass(method: u64) -> u64 {
    of_method(method, |_, _, class| Some(class.0)).unwrap_or(0)
}

/// Returns the number of a class, or 0. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_GetClassIdNum(class: u64) -> i64 {
    let _errno = KeptErrno::new();
    api().and_then(|api| loaded(api, class)).map_or(0, |(class, _)| number_of(class))
}

/// Writes the first `length` entries of a method's line table; returns how many it has. Signal safe.
///
/// # Safety
/// `entries` is null or writable for `length` entries.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub unsafe extern "C" fn ASGST_GetMethodLineNumberTable(
    method: u64,
    entries: *mut LineEntry,
    length: i32,
) -> i32 {
    let _errno = KeptErrno::new();
    let Some(api) = api() else { return 0 };
    let Some((method, _)) = declared(api, method) else { return 0 };
    let room = if entries.is_null() { 0 } else { length };
    let mut count = 0_i32;
    api.hotspot.lines(api.memory, method, |Bci(start_bci), line| {
        if count < room {
            let entry = entries.wrapping_offset(count as isize);
            // SAFETY: the client's array has `length` entries.
            unsafe { entry.write(LineEntry { start_bci, line: i32::from(line) }) };
        }
        count = count.saturating_add(1);
        true
    });
    count
}

/// Returns the line of a bytecode, or -1. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_GetMethodLineNumber(method: u64, bci: i32) -> i32 {
    of_method(method, |api, method, _| api.hotspot.line(api.memory, method, Bci(bci))).map_or(-1, i32::from)
}

/// Returns the jmethodID of a method, null if the VM has made none. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_MethodToJMethodID(method: u64) -> *mut c_void {
    of_method(method, |api, method, _| api.hotspot.method_id(api.memory, method)).unwrap_or(0) as *mut c_void
}

/// Returns the method of a jmethodID, or null. Signal safe.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the proposal's name")]
pub extern "C" fn ASGST_JMethodIDToMethod(id: *mut c_void) -> u64 {
    let _errno = KeptErrno::new();
    api().and_then(|api| api.hotspot.method_of_id(api.memory, id as u64)).map_or(0, |method| method.0)
}
