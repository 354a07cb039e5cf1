//! The files that can have samples of a selection.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use profile::source::Wanted;

use super::times::Times;
use crate::layout::{Folder, service_folder};
use crate::storage::{Entry, Lake, LakeError, PARALLEL};

/// Selections of up to this many hours are listed by hour, longer ones by day.
const HOURS: usize = 30;

const HOURS_A_DAY: i64 = 24;

/// Files, and the number of requests that listed them.
#[derive(Debug, Default)]
pub struct Listed {
    /// The files, by path.
    pub entries: Vec<Entry>,
    /// True if all selected processes are services, so that the folders of other services were not listed.
    pub is_of_services: bool,
    /// Number of requests.
    pub requests: u64,
}

/// Lists the files of the services and hours in which wanted samples can be.
pub async fn list(lake: &Lake, wanted: &Wanted<'_>, times: &Times) -> Result<Listed, LakeError> {
    let all = lake.services().await?;
    let names: Vec<String> = wanted.processes.iter().map(|name| service_folder(name)).collect();
    // A process may be named by its id or its pid as well, which is in no path.
    let is_of_services = !names.is_empty() && names.iter().all(|name| all.contains(name));
    let services = if is_of_services { names } else { all };
    let folders = match times.hours(HOURS) {
        Some(hours) => services
            .iter()
            .flat_map(|service| hours.iter().map(|&hour| Folder { service: service.clone(), hour }))
            .map(|folder| folder.to_string())
            .collect(),
        None => days(lake, &services, times).await?,
    };
    let requests = 1 + folders.len() as u64;
    let files = folders.iter().map(|folder| lake.files(folder));
    let lists: Vec<Vec<Entry>> = stream::iter(files).buffered(PARALLEL).try_collect().await?;
    let mut entries: Vec<Entry> = lists.into_iter().flatten().collect();
    entries.retain(|entry| {
        let own = entry.folder.range_us();
        times.overlap(own.start, own.end - 1)
    });
    Ok(Listed { entries, is_of_services, requests })
}

/// Returns the folders of the days that overlap the times.
async fn days(lake: &Lake, services: &[String], times: &Times) -> Result<Vec<String>, LakeError> {
    let dates = services.iter().map(|service| lake.dates(service));
    let dates: Vec<Vec<String>> = stream::iter(dates).buffered(PARALLEL).try_collect().await?;
    let is_wanted = |date: &String| {
        Folder::day(date).is_some_and(|day| {
            let hour = |hour| Folder { service: String::new(), hour }.range_us();
            let (first, last) = (hour(day * HOURS_A_DAY), hour((day + 1) * HOURS_A_DAY - 1));
            times.overlap(first.start, last.end - 1)
        })
    };
    Ok(dates.into_iter().flatten().filter(is_wanted).collect())
}
