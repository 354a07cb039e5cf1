//! Closed partitions that cannot be read.
//!
//! One damaged file of a store must neither stop the collector nor hide that its time is missing. A closed partition
//! that cannot be opened gets the extension `damaged` and is not opened again; one whose damage a query finds is left
//! out until the next start. Answers state the gap and its file. Retention removes files that are set aside as it
//! removes partitions.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use profile::source::Gap;

use super::error::StoreError;
use super::partition;

/// Extension of partitions that were set aside.
const EXTENSION: &str = "damaged";

const NS_PER_S: u64 = 1_000_000_000;

/// A file that is set aside, and the time that its samples are from, in seconds since the epoch.
#[derive(Clone, Debug)]
pub(super) struct SetAside {
    path: PathBuf,
    range_s: Range<u64>,
}

impl SetAside {
    fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    pub(super) fn gap(&self) -> Gap {
        gap(&self.path, self.range_s.clone())
    }
}

/// Returns the gap that the partition at `path` leaves in this range of seconds since the epoch.
pub(super) fn gap(path: &Path, range_s: Range<u64>) -> Gap {
    Gap {
        path: path.display().to_string(),
        from_ns: range_s.start.saturating_mul(NS_PER_S),
        to_ns: range_s.end.saturating_mul(NS_PER_S),
    }
}

/// Returns whether a closed partition at `path` that fails to open is set aside. Other errors can pass, and a file
/// without the name of a partition is not the store's.
pub(super) fn is_damage(path: &Path, error: StoreError) -> bool {
    matches!(error, StoreError::Damaged | StoreError::Block(_)) && begin_s(path).is_some()
}

/// Sets the partitions at `damaged` aside, and returns all that are, oldest first. If `is_read_only`, files keep their
/// names.
pub(super) fn set_aside(
    directory: &Path,
    damaged: Vec<PathBuf>,
    is_read_only: bool,
) -> Result<Vec<SetAside>, StoreError> {
    let mut begins = Vec::new();
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is = |extension: &str| path.extension().is_some_and(|own| own == extension);
        if is(EXTENSION) || is(partition::EXTENSION) {
            begins.extend(begin_s(&path));
        }
        if is(EXTENSION) {
            paths.push(path);
        }
    }
    for path in damaged {
        let aside = path.with_extension(EXTENSION);
        if is_read_only {
            paths.push(path);
            continue;
        }
        partition::rename_with_logs(&path, &aside)?;
        tracing::error!(
            path = %aside.display(),
            "a partition is damaged and was set aside: its time is missing in answers; restore the file from a backup with the extension {}, or delete it",
            partition::EXTENSION
        );
        paths.push(aside);
    }
    paths.sort();
    begins.sort_unstable();
    let range_s = |path: &Path| {
        let start = begin_s(path)?;
        Some(start..begins.iter().copied().find(|&begin| begin > start).unwrap_or(start + 1))
    };
    Ok(paths.into_iter().filter_map(|path| Some(SetAside { range_s: range_s(&path)?, path })).collect())
}

/// Removes files that are set aside, whose samples are from before `oldest_s`, or that exceed `space` bytes together.
pub(super) fn remove_old(files: &mut Vec<SetAside>, oldest_s: u64, space: u64) {
    let mut bytes: u64 = files.iter().map(SetAside::bytes).sum();
    files.retain(|file| {
        if file.range_s.end >= oldest_s && bytes <= space {
            return true;
        }
        bytes -= file.bytes();
        match partition::remove(&file.path) {
            Ok(()) => tracing::info!(path = %file.path.display(), "removed a damaged partition"),
            Err(error) => {
                tracing::warn!(%error, path = %file.path.display(), "a damaged partition cannot be removed");
            }
        }
        false
    });
}

/// Returns the second at which the partition with this name began.
fn begin_s(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.split_once('-')?.0.parse().ok()
}
