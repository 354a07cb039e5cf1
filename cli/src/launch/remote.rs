//! A profile of a JVM on another machine, over ssh.
//!
//! Approach: one ssh connection runs a shell script there, which unpacks this program and the agent from its input
//! into a new directory, attaches for the wanted time, writes the recording to its output, and removes the directory.
//! The end of the script's input ends the profile, because without a terminal that is how sshd(8) reports a lost
//! connection. A signal to this program closes that input.
//! Invariant: nothing stays on the other machine, and no terminal or further connection is needed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};

use crate::launch::signals::Signals;

/// The script that runs on the other machine.
#[derive(Debug)]
pub struct Remote<'a> {
    /// Host, as ssh(1) accepts it.
    pub host: &'a str,
    pub pid: i32,
    /// Options of `tickwalk attach`.
    pub options: Vec<String>,
    pub library: &'a Path,
}

impl Remote<'_> {
    /// Returns the script of the other machine, for an archive of `bytes` bytes.
    fn script(&self, bytes: usize) -> String {
        let options: Vec<String> = self.options.iter().map(|option| quoted(option)).collect();
        let library = self.library.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "d=$(mktemp -d) || exit 1; trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT TERM; \
             head -c {bytes} | tar -xzf - -C \"$d\" && \
             \"$d/tickwalk\" attach --until-input-ends --agent \"$d\"/{} {} --output \"$d/r.tickwalk\" {} \
             >\"$d/log\" 2>&1 && cat \"$d/r.tickwalk\" || {{ cat \"$d/log\" >&2; exit 1; }}",
            quoted(&library),
            options.join(" "),
            self.pid
        )
    }

    /// Returns the arguments of ssh(1).
    fn arguments(&self, bytes: usize) -> [String; 3] {
        ["--".to_owned(), self.host.to_owned(), self.script(bytes)]
    }

    /// Returns this program and the library, packed.
    fn archive(&self) -> anyhow::Result<Vec<u8>> {
        let tar = Command::new("tar").args(self.packing()?).stderr(Stdio::inherit()).output();
        let tar = tar.context("cannot start tar, which packs the program for the other machine")?;
        anyhow::ensure!(tar.status.success(), "tar could not pack the program ({})", tar.status);
        Ok(tar.stdout)
    }

    /// Returns the arguments of tar(1).
    fn packing(&self) -> anyhow::Result<Vec<String>> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut arguments = ["-c", "--use-compress-program=gzip -1", "--transform=s,.*/,,", "-Pf", "-"]
            .map(str::to_owned)
            .to_vec();
        for path in [&program, self.library] {
            let text = path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))?;
            arguments.push(text.to_owned());
        }
        Ok(arguments)
    }

    /// Returns the commands that [`run`](Self::run) runs, as text for a shell.
    pub fn described(&self) -> anyhow::Result<String> {
        let words = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let arguments = self.arguments(self.archive()?.len());
        Ok(format!("{{ tar {}; cat; }} |\n  ssh {}", words(&self.packing()?), words(&arguments)))
    }

    /// Profiles the JVM until the time is over or a signal arrives, and writes the recording to `output`. Call it
    /// before other threads start.
    ///
    /// # Errors
    /// If a program cannot be started, or one fails; ssh(1) and the other machine write to standard error.
    pub fn run(&self, output: &File) -> anyhow::Result<()> {
        let archive = self.archive()?;
        let output = output.try_clone().context("cannot pass the recording to ssh")?;
        // ssh(1) inherits the mask, so that Ctrl-C reaches only this program.
        Signals::block(&[Signal::SIGINT])?;
        let ssh = Command::new("ssh")
            .args(self.arguments(archive.len()))
            .stdin(Stdio::piped())
            .stdout(output)
            .spawn();
        let mut ssh = ssh.context("cannot start ssh; install an ssh client")?;
        wait(&mut ssh, archive)?;
        let status = ssh.wait().context("cannot wait for ssh")?;
        if !status.success() {
            bail!(
                "nothing was recorded on {} ({status}); its messages are above, and --dry-run shows what runs there",
                self.host
            );
        }
        Ok(())
    }
}

/// Sends the archive and waits for the end of ssh(1). A signal closes its input, which ends the profile; a signal
/// before the archive is sent, or a second one, ends ssh.
fn wait(ssh: &mut Child, archive: Vec<u8>) -> anyhow::Result<()> {
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let process = Pid::from_child(ssh);
    let descriptor = pidfd_open(process, PidfdFlags::empty()).context("cannot watch ssh")?;
    let mut input = ssh.stdin.take().context("ssh has no input")?;
    let (written, input_after) = channel();
    thread::spawn(move || {
        // An error means that ssh has ended.
        if input.write_all(&archive).is_ok() {
            let _ = written.send(input);
        }
    });
    loop {
        let signal = signals.descriptor();
        let mut events = [PollFd::new(&descriptor, PollFlags::IN), PollFd::new(&signal, PollFlags::IN)];
        poll(&mut events, None).context("cannot wait for ssh")?;
        if !events[0].revents().is_empty() {
            return Ok(());
        }
        signals.next()?;
        match input_after.try_recv() {
            Ok(input) => drop(input),
            // An error means that it has ended.
            Err(_) => drop(kill_process(process, rustix::process::Signal::TERM)),
        }
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
