//! Runs the embedded Java program under the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use profile::query::process::ProcessProfile;
use profile::source::recording::Recording;
use tempfile::TempDir;

use crate::output;

/// Name of the Java program's class.
const CLASS_NAME: &str = "TickwalkExperiment";
const CLASS: &[u8] = include_bytes!("workload/TickwalkExperiment.class");

/// The JVM, the agent, and a temporary directory for recordings.
#[derive(Debug)]
pub struct Jvm {
    java: PathBuf,
    agent: PathBuf,
    directory: TempDir,
}

#[derive(Debug)]
pub struct Run {
    pub recording: Recording,
    pub profile: ProcessProfile,
    /// The program's output lines that begin with `truth`, without that word, split at spaces.
    pub truths: Vec<Vec<String>>,
    pub messages: Vec<String>,
    /// User CPU time of the whole JVM by getrusage, in nanoseconds.
    pub user_ns: u64,
    /// System CPU time of the whole JVM by getrusage, in nanoseconds.
    pub system_ns: u64,
}

impl Jvm {
    /// Finds the launcher: `java` or the one in that home directory, else that of `JAVA_HOME`, else `java` in `PATH`.
    pub fn find(java: Option<&Path>, agent: PathBuf) -> anyhow::Result<Self> {
        let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let java = match java.map(Path::to_owned).or(home) {
            Some(named) => launcher(&named)?,
            None => PathBuf::from("java"),
        };
        let directory = output::temporary_directory()?;
        fs::write(directory.path().join(format!("{CLASS_NAME}.class")), CLASS)
            .context("cannot write the Java program to the temporary directory")?;
        Ok(Self { java, agent, directory })
    }

    /// Runs the program with `arguments` under the agent with `options` and reads the recording.
    pub fn run(&self, options: &str, arguments: &[String]) -> anyhow::Result<Run> {
        let recording = self.directory.path().join("run.tickwalk");
        let before = children()?;
        let output = Command::new(&self.java)
            .arg(format!("-agentpath:{}=file={},{options}", self.agent.display(), recording.display()))
            .arg("-cp")
            .arg(self.directory.path())
            .arg(CLASS_NAME)
            .args(arguments)
            .env_remove("JAVA_TOOL_OPTIONS")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}; pass --java PATH", self.java.display()))?;
        let after = children()?;
        if !output.status.success() {
            bail!("{} ended with {}: {}", self.java.display(), output.status, last_lines(&output.stderr));
        }
        let recording = Recording::read(&recording).map_err(|error| {
            anyhow!("the JVM wrote no recording ({error}): {}", last_lines(&output.stderr))
        })?;
        if recording.session().goodbye.is_none() {
            bail!("the recording is incomplete: {}", last_lines(&output.stderr));
        }
        Ok(Run {
            profile: ProcessProfile::whole(&recording)?,
            recording,
            truths: lines_after("truth ", &output.stdout)
                .map(|line| line.split(' ').map(str::to_owned).collect())
                .collect(),
            messages: lines_after("tickwalk: ", &output.stderr).collect(),
            user_ns: after.0.saturating_sub(before.0),
            system_ns: after.1.saturating_sub(before.1),
        })
    }
}

impl Run {
    /// Returns the numbers of the output line `truth NAME ...`.
    pub fn truth(&self, name: &str) -> Option<Vec<i64>> {
        let line = self.truths.iter().find(|line| line.first().is_some_and(|first| first == name))?;
        line.iter().skip(1).map(|number| number.parse().ok()).collect()
    }
}

fn launcher(named: &Path) -> anyhow::Result<PathBuf> {
    let places = [named.join("bin/java"), named.to_owned()];
    let found = places.into_iter().find(|place| place.is_file());
    found.with_context(|| {
        format!("{} is not a JDK, a JRE or a java launcher; correct --java or JAVA_HOME", named.display())
    })
}

/// Returns user and system CPU time of all ended child processes, in nanoseconds.
fn children() -> anyhow::Result<(u64, u64)> {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let ns = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        u64::try_from(micros).unwrap_or(0) * 1_000
    };
    Ok((ns(usage.user_time()), ns(usage.system_time())))
}

/// Returns the lines that begin with `prefix`, without it.
fn lines_after(prefix: &str, output: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect();
    lines.into_iter()
}

fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_are_separated_from_other_lines() {
        assert!(lines_after("truth ", b"hello\ntruth spin 5 -1\n").eq(["spin 5 -1"]));
    }

    #[test]
    fn the_end_of_an_error_is_shown() {
        assert_eq!(last_lines(b"1\n2\n3\n4\n5\n6\n"), "2; 3; 4; 5; 6");
    }

    #[test]
    fn a_folder_without_a_launcher_is_refused() {
        assert!(launcher(Path::new("/proc")).is_err());
    }

    #[test]
    fn the_class_runs_on_the_oldest_jvm() {
        // Class file version 55 is Java 11.
        assert_eq!(CLASS[..8], [0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 55]);
    }
}
