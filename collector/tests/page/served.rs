//! A store with recordings of real JVMs, served as `tickwalk collect` does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use collector::http::{HttpServer, Probe};
use collector::store::{Retention, Store};
use tempfile::TempDir;

/// A running server; dropping it ends it.
pub struct Served {
    /// `http://HOST:PORT`.
    pub origin: String,
    /// What is served.
    pub store: Arc<Store>,
    _server: HttpServer,
    _directory: TempDir,
}

impl Served {
    /// Serves what `fill` puts into a new store; it is given the time of the day.
    pub fn new(fill: impl FnOnce(&Store, u64)) -> Served {
        let directory = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(directory.path(), Retention::default()).expect("a new store");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set");
        fill(&store, u64::try_from(now.as_nanos()).expect("this century"));
        let store = Arc::new(store);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = HttpServer::start(address, store.clone(), Probe::default()).expect("a free port");
        let origin = format!("http://{}", server.address());
        Served { origin, store, _server: server, _directory: directory }
    }
}
