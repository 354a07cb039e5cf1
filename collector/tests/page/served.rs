//! A store with recordings of real JVMs, served as `tickwalk collect` does.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use collector::http::{HttpServer, Probe};
use collector::source_path::{SourcePath, WithSources};
use collector::store::{Retention, Store};
use profile::source::SharedSource;
use tempfile::TempDir;

/// A running server; dropping it ends it.
pub struct Served {
    /// `http://HOST:PORT`.
    pub origin: String,
    /// The store that is served.
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
        let server = serve(store.clone());
        Served { origin: origin(&server), store, _server: server, _directory: directory }
    }

    /// Serves the same with the source files below `folder`.
    pub fn with_sources(self, folder: &Path) -> Served {
        let texts = SourcePath::open(&[folder.to_owned()]).expect("a folder");
        let server = serve(Arc::new(WithSources { samples: self.store.clone(), texts }));
        Served { origin: origin(&server), _server: server, ..self }
    }
}

fn serve(source: SharedSource) -> HttpServer {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    HttpServer::start(address, source, Probe::default()).expect("a free port")
}

fn origin(server: &HttpServer) -> String {
    format!("http://{}", server.address())
}
