//! Settings of a forwarder.

use std::time::Duration;

/// Settings for building and sending requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time covered by one request.
    pub every: Duration,
    /// Number of distinct pairs of thread and stack at which requests are sent early.
    pub cells: usize,
    /// Maximum length of a request in bytes; gRPC in Go accepts 4 MiB by default.
    pub request_bytes: u64,
    /// Maximum bytes of requests that wait for one receiver; they take about three times that in memory.
    pub buffer_bytes: u64,
    /// Maximum time for a response.
    pub timeout: Duration,
    /// Pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// Maximum time for deliveries in progress when the forwarder stops.
    pub stop: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            every: Duration::from_secs(10),
            cells: 100_000,
            request_bytes: 3 << 20,
            buffer_bytes: 64 << 20,
            timeout: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            stop: Duration::from_secs(5),
        }
    }
}
