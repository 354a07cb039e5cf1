//! The destinations of a profile, from the options: a recording file, a collector, or both.

use profile::source::recording::keep_existing;
use sampler_thread::send::delivery::Target;
use sampler_thread::send::sink::{Destinations, FileSink};

use super::refusal::Refusal;
use super::storage::is_unnamed;
use agent_options::{Collector, Options};

/// Opens the recording file, if the options name one; an existing one is kept as FILE.1.
///
/// # Errors
/// [`Refusal::Recording`].
pub fn open_file(options: &Options) -> Result<Destinations, Refusal> {
    let mut destinations = Destinations::default();
    if let Some(path) = &options.file {
        // An earlier recording of this name is kept, as `tickwalk record` does. A storage without a name is empty.
        let kept = if is_unnamed(path) { Ok(()) } else { keep_existing(path) };
        let file = kept
            .and_then(|()| FileSink::create(path))
            .map_err(|error| Refusal::Recording { path: path.display().to_string(), error })?;
        destinations.add(Box::new(file));
    }
    Ok(destinations)
}

/// Returns the collector as a target for connections, if the options name one. Nothing is connected yet.
///
/// # Errors
/// [`Refusal::Certificates`], [`Refusal::Unencrypted`].
pub fn collector(options: &Options) -> Result<Option<Target>, Refusal> {
    let Some(collector) = &options.collector else { return Ok(None) };
    let target = match collector {
        Collector::Unix(path) => Target::Unix(path.clone()),
        Collector::Tcp(address) => Target::Tcp { address: address.clone(), insecure: options.insecure },
        Collector::Tls(address) => Target::tls(address, options.certificates.as_deref())
            .map_err(|error| Refusal::Certificates { address: address.clone(), error })?,
    };
    if target.is_unencrypted_network() {
        return Err(Refusal::Unencrypted { address: target.to_string() });
    }
    Ok(Some(target))
}
