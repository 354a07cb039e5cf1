//! An S3 server in Python that fails on demand.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::python;

/// The bucket of the server.
const BUCKET: &str = "lake";

/// A running S3 server, which is killed when dropped.
pub struct ObjectStore {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
    endpoint: String,
}

impl ObjectStore {
    /// Starts a server whose objects are files in `directory`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(directory: &Path) -> ObjectStore {
        Self::serve(directory, "http://127.0.0.1", &[])
    }

    /// Like [`start`](Self::start), over TLS with the PEM files of a certificate for `localhost` and its key.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    pub fn start_tls(directory: &Path, certificate: &Path, key: &Path) -> ObjectStore {
        Self::serve(directory, "https://localhost", &[certificate, key])
    }

    fn serve(directory: &Path, origin: &str, certificate: &[&Path]) -> ObjectStore {
        let mut command = python::reader("object_store");
        command.arg(directory).arg(BUCKET).args(certificate).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let commands = child.stdin.take().expect("a piped stdin");
        let mut answers = BufReader::new(child.stdout.take().expect("a piped stdout"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("text");
        let port = line.trim().strip_prefix("ready ").expect("the server is ready");
        let endpoint = format!("{origin}:{port}");
        ObjectStore { child, commands, answers, directory: directory.to_owned(), endpoint }
    }

    /// Makes requests with this access key fail in this way, a method of `Faults` in `readers/object_store.py`.
    ///
    /// # Panics
    /// If the server has ended, as it does when there is no such method.
    pub fn fail(&mut self, key: &str, fault: &str) {
        writeln!(self.commands, "fault {key} {fault}").expect("the server runs");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("text");
        assert!(!answer.is_empty(), "the server has ended");
    }

    /// Returns the URL of a lake in the bucket.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}/profiles")
    }

    /// Returns the directory with the files of that lake.
    pub fn files(&self) -> PathBuf {
        self.directory.join(BUCKET).join("profiles")
    }

    /// Returns the environment of a process that uses the server with this access key.
    pub fn environment<'s>(&'s self, key: &'s str) -> [(&'static str, &'s str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ]
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // Both fail if the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
