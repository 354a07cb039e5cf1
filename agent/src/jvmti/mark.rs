//! Marks by which other processes recognise a library as this agent, and see that it profiles.
//!
//! Problem: a library may have any file name, a thread gets its name some time after it was started, and what a
//! process has in memory is not for everybody who may see its list of mappings.
//! Approach: a mapping of an empty file in memory, whose name is in that list. The name has an address in this
//! library, so the list also has the path by which the library was loaded. The mapping has no access and takes no
//! memory.
//! Limit: where memfd_create(2) is forbidden, commands know the agent by its file name only.
//! Sources: memfd_create(2), proc_pid_maps(5).

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Bytes of the mapping; the kernel rounds up to a page.
const BYTES: usize = 1;

/// A mapping with a name, until it is dropped.
#[derive(Debug)]
pub struct Mark {
    address: usize,
}

/// Shows that this library is the agent, from the first call on.
pub fn show_agent() {
    static AGENT: OnceLock<Option<Mark>> = OnceLock::new();
    AGENT.get_or_init(|| Mark::new("agent"));
}

impl Mark {
    /// Shows a profile; `None` if that is not possible.
    pub fn of_profile() -> Option<Self> {
        Self::new("profile")
    }

    fn new(kind: &str) -> Option<Self> {
        Self::map(kind)
            .inspect_err(|error| tracing::info!("commands do not see the mark of the {kind}: {error}"))
            .ok()
    }

    fn map(kind: &str) -> io::Result<Self> {
        let own_address = show_agent as fn() as usize;
        let name = CString::new(format!("tickwalk-{kind}-{own_address:x}"))?;
        let plain = MFdFlags::MFD_CLOEXEC;
        let sealed = plain | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
        // Kernels before 6.3 do not know the seal; later ones may demand it.
        let file = memfd_create(&*name, sealed).or_else(|_| memfd_create(&*name, plain))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address: address as usize })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to its content.
        unsafe { libc::munmap(self.address as *mut c_void, BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(kind: &str) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
        let name = format!("/memfd:tickwalk-{kind}-");
        maps.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
    }

    #[test]
    fn a_mark_lasts_as_long_as_its_value_and_has_an_address_of_this_library() {
        let mark = Mark::new("test").expect("made");
        let [line] = &marks("test")[..] else { panic!("{:?}", marks("test")) };
        let digits = line.rsplit_once('-').expect("a name").1.trim_end_matches(" (deleted)");
        assert_eq!(usize::from_str_radix(digits, 16), Ok(show_agent as fn() as usize));
        assert!(line.contains(" ---p "), "{line}");
        drop(mark);
        assert!(marks("test").is_empty());
    }
}
