//! A process as `/proc` shows it: ids, signals, libraries, and the files that it sees.
//!
//! Problem: a JVM under systemd or in a container has a root directory, a `/tmp` and process ids of its own.
//! Approach: `/proc/PID/root` leads to its files, the last number of `NSpid` is its process id for itself.
//! Invariant: the files of a process may contain anything, so a limited part of each is read.
//! Sources: proc_pid_status(5), proc_pid_maps(5), proc_pid_root(5), pid_namespaces(7), ptrace(2).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use rustix::process::Signal;

use super::foreign;
use super::identity::Owner;

/// End of a path in `/proc/PID/maps` whose file was removed or replaced.
const DELETED: &str = " (deleted)";

/// Most bytes of `/proc/PID/maps` that are read: enough for 65,530 mappings, the kernel's default limit, with usual
/// paths.
const MAX_MAPS: u64 = 32 << 20;
/// Most bytes of any other file below `/proc/PID` that are read; the kernel limits arguments and environment to 6 MiB.
const MAX_BYTES: u64 = 8 << 20;

/// A process id with the files under `/proc/PID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    id: i32,
    is_hidden: bool,
}

/// Contents of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    pub owner: Owner,
    /// Real user, whose number of threads is limited.
    pub real_user: u32,
    pub capabilities: u64,
    /// The process id in the pid namespace of the process.
    pub inner_pid: i32,
    /// True if the process handles SIGQUIT, which would otherwise kill it.
    pub handles_quit: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Its path, as the process sees it.
    pub path: PathBuf,
    pub inode: u64,
    /// Addresses of the first mapping, as in the names below `/proc/PID/map_files`.
    pub addresses: String,
    /// Addresses of all its mappings.
    pub spans: Vec<Range<u64>>,
    /// True if the file at this path was deleted or replaced.
    pub is_deleted: bool,
}

impl Process {
    /// Returns the process with this id, which need not exist.
    pub fn of(id: i32) -> Self {
        let root = fs::metadata(format!("/proc/{id}/root"));
        let is_hidden = root.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        Self { id, is_hidden }
    }

    pub fn id(self) -> i32 {
        self.id
    }

    /// Returns whether this user may not see the mappings and files of the process: it belongs to another user,
    /// cannot be dumped (`PR_SET_DUMPABLE`), or has capabilities that this process lacks.
    pub fn is_hidden(self) -> bool {
        self.is_hidden
    }

    /// Returns the path of a file below `/proc/PID`.
    pub fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.id))
    }

    /// Reads the beginning of a file below `/proc/PID` as text.
    fn text(self, name: &str) -> io::Result<String> {
        foreign::read(fs::File::open(self.file(name))?, MAX_BYTES)
    }

    /// Reads ids and signals.
    ///
    /// # Errors
    /// As reading a file; `NotFound` if there is no such process.
    pub fn status(self) -> io::Result<Status> {
        Status::parse(&self.text("status")?, self.id).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns the mapped files, each once.
    ///
    /// # Errors
    /// As reading a file; `PermissionDenied` for processes of other users.
    pub fn mapped_files(self) -> io::Result<Vec<MappedFile>> {
        Ok(mapped_files(&foreign::read(fs::File::open(self.file("maps"))?, MAX_MAPS)?))
    }

    /// Returns a path to its root directory; that of a hidden process is assumed to be the one of this process.
    pub fn root(self) -> PathBuf {
        if self.is_hidden { PathBuf::from("/") } else { self.file("root") }
    }

    /// Returns the path for this process of what the other one sees at `path`.
    pub fn outer_path(self, path: &Path) -> PathBuf {
        self.root().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns whether paths mean the same files for the process and for this one.
    ///
    /// # Errors
    /// `PermissionDenied` for processes of other users.
    pub fn sees_our_files(self) -> io::Result<bool> {
        if self.is_hidden {
            return Ok(true);
        }
        if fs::read_link(self.file("ns/mnt"))? != fs::read_link("/proc/self/ns/mnt")? {
            return Ok(false);
        }
        let (theirs, ours) = (fs::metadata(self.file("root/."))?, fs::metadata("/")?);
        Ok((theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()))
    }

    /// Returns the arguments; empty for a process that has ended.
    pub fn arguments(self) -> Vec<String> {
        let text = self.text("cmdline").unwrap_or_default();
        let text = text.trim_end_matches('\0');
        if text.is_empty() { Vec::new() } else { text.split('\0').map(str::to_owned).collect() }
    }

    /// Returns the values of variables of its environment, as it was when the process started.
    pub fn environment(self, names: &[&str]) -> Vec<Option<String>> {
        let text = self.text("environ").unwrap_or_default();
        let value = |name: &&str| text.split('\0').find_map(|one| one.strip_prefix(*name)?.strip_prefix('='));
        names.iter().map(|name| value(name).map(str::to_owned)).collect()
    }

    pub fn control_groups(self) -> String {
        self.text("cgroup").unwrap_or_default()
    }

    pub fn mounts(self) -> String {
        self.text("mountinfo").unwrap_or_default()
    }

    pub fn limits(self) -> String {
        self.text("limits").unwrap_or_default()
    }

    /// Returns whether the process has a thread of this name.
    pub fn has_thread(self, name: &str) -> bool {
        let threads = fs::read_dir(self.file("task")).into_iter().flatten().flatten();
        let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|comm| comm.trim_end() == name)
    }

    /// Returns the container of the process: the beginning of its id, its systemd unit, or its pid namespace. `None`
    /// if it shares the namespaces of this process.
    pub fn container(self) -> Option<String> {
        let differs = |name: &str| {
            let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
            let theirs = link(&self.id.to_string())?;
            (Some(&theirs) != link("self").as_ref()).then_some(theirs)
        };
        let (pid_namespace, mounts) = (differs("pid"), differs("mnt"));
        if pid_namespace.is_none() && mounts.is_none() {
            return None;
        }
        let named = container_of(&self.control_groups());
        named.or_else(|| (pid_namespace.or(mounts)).map(|namespace| namespace.display().to_string()))
    }
}

impl Status {
    fn parse(text: &str, pid: i32) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let effective = |name: &str| field(name)?.split_whitespace().nth(1)?.parse().ok();
        let inner_pid = field("NSpid:").and_then(|ids| ids.split_whitespace().last()?.parse().ok());
        let mask = |name: &str| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        Some(Self {
            owner: Owner { user: effective("Uid:")?, group: effective("Gid:")? },
            real_user: field("Uid:")?.split_whitespace().next()?.parse().ok()?,
            capabilities: mask("CapEff:").unwrap_or_default(),
            inner_pid: inner_pid.unwrap_or(pid),
            // The lowest bit of the mask is signal 1.
            handles_quit: mask("SigCgt:").is_some_and(|mask| mask >> (Signal::QUIT.as_raw() - 1) & 1 == 1),
        })
    }
}

impl MappedFile {
    /// Returns whether the file has this name.
    pub fn is_named(&self, name: &str) -> bool {
        self.path.file_name().is_some_and(|file| file == name)
    }

    /// Returns whether it is mapped at this address.
    pub fn holds(&self, address: u64) -> bool {
        self.spans.iter().any(|span| span.contains(&address))
    }
}

/// Reads the mappings with a path. A path that really ends in " (deleted)" counts as deleted.
fn mapped_files(maps: &str) -> Vec<MappedFile> {
    let mut found: Vec<MappedFile> = Vec::new();
    let mut places: HashMap<(u64, &str), usize> = HashMap::new();
    for line in maps.lines() {
        // Addresses, permissions, offset, device, inode, path.
        let mut fields = line.splitn(5, ' ');
        let (Some(addresses), Some(rest)) = (fields.next(), fields.nth(3)) else { continue };
        let Some((inode, path)) = rest.split_once(' ') else { continue };
        let path = path.trim_start();
        let Some(inode) = inode.parse().ok().filter(|_| path.starts_with('/')) else { continue };
        let Some(span) = span(addresses) else { continue };
        let (path, is_deleted) = path.strip_suffix(DELETED).map_or((path, false), |path| (path, true));
        let place = *places.entry((inode, path)).or_insert(found.len());
        match found.get_mut(place) {
            Some(file) => file.spans.push(span),
            None => {
                let (path, addresses) = (path.into(), addresses.to_owned());
                found.push(MappedFile { path, inode, addresses, spans: vec![span], is_deleted });
            }
        }
    }
    found
}

/// Reads `BEGIN-END` in hexadecimal.
fn span(addresses: &str) -> Option<Range<u64>> {
    let (begin, end) = addresses.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(address(begin)?..address(end)?)
}

/// Returns the container, or the unit of systemd, in the lines of `/proc/PID/cgroup`.
fn container_of(control_groups: &str) -> Option<String> {
    const SHORT_ID: usize = 12;
    let paths = control_groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let parts: Vec<&str> = paths.flat_map(|path| path.split('/')).collect();
    let id = parts.iter().rev().find_map(|part| {
        // `docker-ID.scope`, `cri-containerd-ID.scope`, `ID`.
        let name = part.strip_suffix(".scope").unwrap_or(part);
        let id = name.rsplit('-').next()?;
        (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.get(..SHORT_ID))?
    });
    let unit = || parts.iter().rev().find(|part| part.ends_with(".service")).copied();
    id.or_else(unit).map(str::to_owned)
}

pub fn user_name(user: u32) -> String {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| user.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_process_in_a_pid_namespace() {
        let text = "Name:\tjava\nUid:\t0\t1000\t0\t0\nGid:\t0\t100\t0\t0\nNSpid:\t4321\t7\nSigCgt:\t2000000181005ccf\n\
            CapEff:\t0000000001000000\n";
        let status = Status::parse(text, 4321).expect("complete");
        assert_eq!(status.owner, Owner { user: 1000, group: 100 });
        assert_eq!((status.inner_pid, status.handles_quit), (7, true));
        assert_eq!((status.real_user, status.capabilities), (0, 1 << 24));
        let other = text.replace("5ccf", "5ccb").replace("NSpid:\t4321\t7\n", "");
        let status = Status::parse(&other, 4321).expect("complete");
        assert_eq!((status.inner_pid, status.handles_quit), (4321, false));
        assert_eq!(Status::parse("Name:\tjava\n", 1), None);
    }

    #[test]
    fn mapped_files_of_a_list() {
        let maps = "\
7f00-7f01 r--p 00000000 fd:01 99                         /opt/jdk/lib/server/libjvm.so (deleted)
7f01-7f02 r-xp 00001000 fd:01 99                         /opt/jdk/lib/server/libjvm.so (deleted)
7f02-7f03 rw-p 00000000 00:00 0 
7f03-7f04 rw-p 00000000 00:00 0                          [heap]
7f04-7f05 rw-s 00000000 fd:01 7                          /tmp/hsperfdata_a b/12
";
        let found = mapped_files(maps);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].is_deleted && found[0].is_named("libjvm.so") && found[0].inode == 99);
        assert!(!found[1].is_deleted);
        assert_eq!(
            (found[1].path.as_path(), found[1].addresses.as_str()),
            (Path::new("/tmp/hsperfdata_a b/12"), "7f04-7f05")
        );
        // The library has two mappings, side by side.
        let held: Vec<bool> = [0x7eff, 0x7f00, 0x7f01, 0x7f02].map(|at| found[0].holds(at)).into();
        assert_eq!(held, [false, true, true, false]);
    }

    #[test]
    fn containers_and_units() {
        let id = "0123456789abcdef".repeat(4);
        let named = |path: &str| container_of(&format!("0::{path}\n"));
        for path in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods/burstable/pod1/{id}"),
            format!("/kubepods.slice/cri-containerd-{id}.scope/app.service"),
        ] {
            assert_eq!(named(&path).as_deref(), Some("0123456789ab"), "{path}");
        }
        assert_eq!(named("/system.slice/shop.service").as_deref(), Some("shop.service"));
        assert_eq!(named("/"), None);
    }
}
