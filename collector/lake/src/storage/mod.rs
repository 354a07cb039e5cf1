//! A lake: a place in object storage, or a directory.

mod http;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, PutPayload, RetryConfig};
use tokio::runtime::Runtime;
use url::Url;

use crate::layout::Folder;
use http::Connector;

/// Requests at the same time: enough for small files, which take 30 ms each, most of it latency.
pub const PARALLEL: usize = 32;

/// Attempts of a request within the client of the object store; callers repeat what fails after that.
const RETRIES: usize = 3;

/// Time after which a request is not attempted again.
const RETRY_TIME: Duration = Duration::from_secs(30);

/// Hosts that give a machine of a cloud its credentials, if the environment has none.
const METADATA_SERVICES: [&str; 3] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

/// Why a lake cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// The text is no URL of a lake.
    #[error(
        "{0}: not the URL of a lake; write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH"
    )]
    Url(String),
    /// The object store failed.
    #[error("{0}; check the URL, its credentials and its endpoint")]
    Storage(String),
    /// There are no credentials in the environment, and the service that has those of a machine gave none.
    #[error(
        "{0}: no credentials were obtained; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for gs:// \
         GOOGLE_SERVICE_ACCOUNT, for az:// AZURE_STORAGE_ACCOUNT_KEY), or give this machine a role: {1}"
    )]
    Credentials(String, String),
    /// There is no such directory.
    #[error("{0}: there is no such directory; name the URL that 'tickwalk collect --lake' has")]
    NoDirectory(LakeUrl),
    /// A file is not there: it was removed by compaction or retention.
    #[error("{0} is gone")]
    Gone(String),
    /// A file cannot be decoded.
    #[error("{0} is damaged: {1}; remove the file to read the others")]
    Damaged(String, String),
    /// The selection does not fit into the memory of one machine; how large it is, and a command for DuckDB.
    #[error("the selection has {0}; narrow the time and the processes, or let an engine read it: {1}")]
    TooLarge(String, String),
    /// Reading took too long, or its result is no longer needed.
    #[error(
        "the lake was not read in time; narrow the time and the processes, or allow more time with --timeout"
    )]
    Late,
    /// A file on the local disk cannot be used.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The URL of a lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LakeUrl(Url);

impl LakeUrl {
    /// Returns whether a text begins like the URL of a lake.
    pub fn is_one(text: &str) -> bool {
        ["s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "file://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
    }

    /// Returns what is before `://`.
    pub fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// Returns the directory of a `file://` URL.
    pub fn directory(&self) -> Option<PathBuf> {
        self.0.to_file_path().ok()
    }
}

impl FromStr for LakeUrl {
    type Err = LakeError;

    fn from_str(text: &str) -> Result<LakeUrl, LakeError> {
        let url = Url::parse(text)
            .ok()
            .filter(|url| LakeUrl::is_one(text) && ObjectStoreScheme::parse(url).is_ok());
        url.map(LakeUrl).ok_or_else(|| LakeError::Url(text.to_owned()))
    }
}

impl fmt::Display for LakeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file of a lake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Folder of its path.
    pub folder: Folder,
    /// Name in the folder.
    pub name: String,
    /// Bytes.
    pub len: u64,
}

impl Entry {
    /// Returns the path below the root of the lake.
    pub fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

/// An open lake. Its methods block; they must not be called by a thread that runs asynchronous tasks.
#[derive(Debug)]
pub struct Lake {
    store: Arc<dyn ObjectStore>,
    root: Path,
    /// Always there, except while the lake is dropped.
    runtime: Option<Runtime>,
    name: String,
}

impl Drop for Lake {
    fn drop(&mut self) {
        // Requests that were given up must not delay the end of a command.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lake {
    /// Opens the lake at `url`. Credentials, endpoint and region come from the environment (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and the others of `object_store`).
    ///
    /// # Errors
    /// If the environment is not sufficient, or there is no such directory.
    pub fn open(url: &LakeUrl) -> Result<Lake, LakeError> {
        let text = url.to_string();
        let unusable = |error: object_store::Error| LakeError::Storage(format!("{text}: {error}"));
        let (scheme, root) = ObjectStoreScheme::parse(&url.0).map_err(|_| LakeError::Url(text.clone()))?;
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => return Lake::of_directory(url),
            ObjectStoreScheme::AmazonS3 => Arc::new(
                AmazonS3Builder::from_env()
                    .with_url(url.to_string())
                    .with_retry(retry)
                    .with_http_connector(Connector)
                    .build()
                    .map_err(unusable)?,
            ),
            ObjectStoreScheme::GoogleCloudStorage => Arc::new(
                GoogleCloudStorageBuilder::from_env()
                    .with_url(url.to_string())
                    .with_retry(retry)
                    .with_http_connector(Connector)
                    .build()
                    .map_err(unusable)?,
            ),
            ObjectStoreScheme::MicrosoftAzure => Arc::new(
                MicrosoftAzureBuilder::from_env()
                    .with_url(url.to_string())
                    .with_retry(retry)
                    .with_http_connector(Connector)
                    .build()
                    .map_err(unusable)?,
            ),
            _ => return Err(LakeError::Url(text)),
        };
        Ok(Lake::of(store, root, text)?)
    }

    /// Opens the lake at `url`; a directory is made if it does not exist.
    ///
    /// # Errors
    /// As [`open`](Lake::open), and if the directory cannot be made.
    pub fn create(url: &LakeUrl) -> Result<Lake, LakeError> {
        if let Some(path) = url.directory() {
            std::fs::create_dir_all(path)?;
        }
        Lake::open(url)
    }

    /// Opens a directory as a lake.
    fn of_directory(url: &LakeUrl) -> Result<Lake, LakeError> {
        let path = url.directory().ok_or_else(|| LakeError::Url(url.to_string()))?;
        if !path.is_dir() {
            return Err(LakeError::NoDirectory(url.clone()));
        }
        let store = LocalFileSystem::new_with_prefix(&path)
            .map_err(|error| LakeError::Storage(format!("{url}: {error}")))?
            .with_automatic_cleanup(true)
            // The spool removes its copy afterwards.
            .with_fsync(true);
        Ok(Lake::of(Arc::new(store), Path::default(), url.to_string())?)
    }

    /// Returns the lake below `root` in an object store.
    ///
    /// # Errors
    /// If its runtime cannot be started.
    pub fn of(store: Arc<dyn ObjectStore>, root: Path, name: String) -> std::io::Result<Lake> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Lake { store, root, runtime: Some(runtime), name })
    }

    fn location(&self, path: &str) -> Result<Path, LakeError> {
        let whole =
            if self.root.as_ref().is_empty() { path.to_owned() } else { format!("{}/{path}", self.root) };
        Path::parse(&whole).map_err(|error| LakeError::Storage(format!("{}: {error}", self.name)))
    }

    fn failed(&self, path: &str, error: object_store::Error) -> LakeError {
        match error {
            object_store::Error::NotFound { .. } => LakeError::Gone(format!("{}: {path}", self.name)),
            error => {
                let text = error.to_string();
                if METADATA_SERVICES.iter().any(|host| text.contains(host)) {
                    return LakeError::Credentials(self.name.clone(), text);
                }
                LakeError::Storage(format!("{}: {text}", self.name))
            }
        }
    }

    /// Runs `work` to its end.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, LakeError>>) -> Result<T, LakeError> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => Err(LakeError::Late),
        }
    }

    /// Writes a file, whole or not at all. A file with this path is replaced.
    ///
    /// # Errors
    /// If the object store fails.
    pub fn put(&self, path: &str, bytes: Bytes) -> Result<(), LakeError> {
        let location = self.location(path)?;
        let put = self.store.put(&location, PutPayload::from(bytes));
        self.run(async { put.await.map(drop).map_err(|error| self.failed(path, error)) })
    }

    /// Reads files, several at the same time, in their order.
    ///
    /// # Errors
    /// If the object store fails; [`LakeError::Gone`] for a file that is not there.
    pub fn get_all(&self, paths: &[String]) -> Result<Vec<Bytes>, LakeError> {
        let gets = paths.iter().map(|path| async move {
            let result = self.store.get(&self.location(path)?).await;
            let result = result.map_err(|error| self.failed(path, error))?;
            result.bytes().await.map_err(|error| self.failed(path, error))
        });
        self.run(stream::iter(gets).buffered(PARALLEL).try_collect())
    }

    /// Reads bytes of a file.
    ///
    /// # Errors
    /// If the object store fails; [`LakeError::Gone`] if the file is not there.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, LakeError> {
        let bytes = self.store.get_range(&self.location(path)?, range).await;
        bytes.map_err(|error| self.failed(path, error))
    }

    /// Removes files; those that are not there are ignored.
    ///
    /// # Errors
    /// If the object store fails.
    pub fn delete_all(&self, paths: &[String]) -> Result<(), LakeError> {
        let deletes = paths.iter().map(|path| async move {
            match self.store.delete(&self.location(path)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(path, error)),
            }
        });
        self.run(stream::iter(deletes).buffered(PARALLEL).try_collect())
    }

    /// Returns the first parts of all paths, `service=NAME`, by name.
    ///
    /// # Errors
    /// If the object store fails.
    pub async fn services(&self) -> Result<Vec<String>, LakeError> {
        self.folders("", "service=").await
    }

    /// Returns the folders of a service's dates, `service=NAME/date=DATE`, by date.
    ///
    /// # Errors
    /// If the object store fails.
    pub async fn dates(&self, service: &str) -> Result<Vec<String>, LakeError> {
        let dates = self.folders(service, "date=").await?;
        Ok(dates.into_iter().map(|date| format!("{service}/{date}")).collect())
    }

    /// Returns the names of the folders below `path` that begin with `prefix`.
    async fn folders(&self, path: &str, prefix: &str) -> Result<Vec<String>, LakeError> {
        let location = self.location(path)?;
        let listed = match self.store.list_with_delimiter(Some(&location)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed.map_err(|error| self.failed(path, error))?,
        };
        let names = listed.common_prefixes.iter().filter_map(|path| path.filename());
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the files below a folder, by path.
    ///
    /// # Errors
    /// If the object store fails.
    pub async fn files(&self, folder: &str) -> Result<Vec<Entry>, LakeError> {
        let location = self.location(folder)?;
        let listed: Result<Vec<_>, _> = self.store.list(Some(&location)).try_collect().await;
        let root = self.root.as_ref().len() + usize::from(!self.root.as_ref().is_empty());
        let mut entries: Vec<Entry> = listed
            .map_err(|error| self.failed(folder, error))?
            .into_iter()
            .filter_map(|meta| {
                let path = meta.location.as_ref().get(root..)?;
                let (_, name) = path.rsplit_once('/')?;
                Some(Entry { folder: Folder::parse(path)?, name: name.to_owned(), len: meta.size })
            })
            .collect();
        entries.sort();
        Ok(entries)
    }
}

impl fmt::Display for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn missing_credentials_are_named() {
        let lake =
            Lake::of(Arc::new(InMemory::new()), Path::default(), "s3://a/b".to_owned()).expect("a lake");
        let text = |source: &str| {
            let error = object_store::Error::Generic { store: "S3", source: source.into() };
            lake.failed("file", error).to_string()
        };
        let missing = text("PUT http://169.254.169.254/latest/api/token: 403 Forbidden");
        assert!(
            missing.starts_with("s3://a/b: no credentials were obtained; set AWS_ACCESS_KEY_ID"),
            "{missing}"
        );
        assert!(missing.ends_with("403 Forbidden"), "{missing}");
        assert!(text("503 Slow Down").ends_with("check the URL, its credentials and its endpoint"));
    }
}
