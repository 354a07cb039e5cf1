//! A profile of a JVM on another machine, over ssh.
//!
//! Approach: one ssh connection runs a shell script there, which unpacks this program and the agent from its input into a new
//! directory, attaches for the wanted time, writes the recording to its output, and removes the directory.
//! Invariant: nothing stays on the other machine, and no terminal or further connection is needed.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The script that runs on the other machine.
#[derive(Debug)]
pub struct Remote<'a> {
    /// Host, as ssh(1) accepts it.
    pub host: &'a str,
    /// Process id of the JVM there.
    pub pid: i32,
    /// Options of `tickwalk attach`.
    pub options: Vec<String>,
    /// The agent's library.
    pub library: &'a Path,
}

impl Remote<'_> {
    /// Returns the script of the other machine.
    fn script(&self) -> String {
        let options: Vec<String> = self.options.iter().map(|option| quoted(option)).collect();
        let library = self.library.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "d=$(mktemp -d) || exit 1; trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT TERM; tar -xzf - -C \"$d\" && \
             \"$d/tickwalk\" attach --agent \"$d\"/{} {} --output \"$d/r.tickwalk\" {} >\"$d/log\" 2>&1 \
             </dev/null && cat \"$d/r.tickwalk\" || {{ cat \"$d/log\" >&2; exit 1; }}",
            quoted(&library),
            options.join(" "),
            self.pid
        )
    }

    /// Returns the arguments of ssh(1).
    fn arguments(&self) -> [String; 3] {
        ["--".to_owned(), self.host.to_owned(), self.script()]
    }

    /// Returns the arguments of tar(1), which packs this program and the library.
    fn packing(&self) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut arguments =
            vec!["-cz".to_owned(), "--transform=s,.*/,,".to_owned(), "-Pf".to_owned(), "-".to_owned()];
        for path in [&program, self.library] {
            let text = path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))?;
            arguments.push(text.to_owned());
        }
        Ok(arguments)
    }

    /// Returns the commands that [`run`](Self::run) runs, as text for a shell.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn described(&self) -> anyhow::Result<String> {
        let words = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        Ok(format!("tar {} |\n  ssh {}", words(&self.packing()?), words(&self.arguments())))
    }

    /// Profiles the JVM, and writes the recording to `output`.
    ///
    /// # Errors
    /// If a program cannot be started, or one fails; ssh(1) and the other machine write to standard error.
    pub fn run(&self, output: &Path) -> anyhow::Result<()> {
        let mut tar = Command::new("tar")
            .args(self.packing()?)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start tar, which packs the program for the other machine")?;
        let packed = tar.stdout.take().context("tar has no output")?;
        let file = File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
        let ssh = Command::new("ssh").args(self.arguments()).stdin(packed).stdout(file).status();
        let ssh = ssh.context("cannot start ssh; install an ssh client")?;
        let packed = tar.wait().context("cannot wait for tar")?;
        if !ssh.success() {
            // A file in another format is no recording.
            let _ = std::fs::remove_file(output);
            bail!(
                "nothing was recorded on {} ({ssh}); its messages are above, and --dry-run shows what runs there",
                self.host
            );
        }
        anyhow::ensure!(packed.success(), "tar could not pack the program ({packed})");
        Ok(())
    }
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,%@+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        for (word, text) in
            [("-d", "-d"), ("", "''"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("$d", "'$d'")]
        {
            assert_eq!(quoted(word), text);
        }
    }
}
