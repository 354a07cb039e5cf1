//! The commands of `README.md` and of the pages in `docs/` run as they are written.
//!
//! Problem: a command that a page shows stops working when the command line changes.
//! Approach: each block that is fenced as `sh` is run by bash in a folder that has what the page talks about:
//! `app.jar`, recordings, a running JVM in place of `PID`. Commands that run until they are stopped are stopped after
//! the page.
//! Invariant: each command exits with 0. Blocks fenced as `bash` need other software (Docker, a second machine) and are
//! not run, nor are blocks that build the project.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use java_tests::{Jdk, Workload, binaries, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Programs that a block without software of others may run.
const RUNS: &[&str] = &["tickwalk", "java", "cargo", "./demo", "./test", "cli/packaging/install"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the blocks of a page that are fenced with exactly `fence`, each a list of commands.
fn blocks(text: &str, fence: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if info == fence {
            let joined = body.join("\n").replace("\\\n", " ");
            blocks.push(joined.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect());
        }
    }
    blocks
}

/// Folder in which commands run, with all that the pages talk about.
struct Desk {
    folder: tempfile::TempDir,
    path: String,
    agents: u16,
    http: u16,
    /// Commands that run until the page is done.
    running: RefCell<Vec<Running>>,
}

impl Desk {
    fn new(jdk: &Jdk) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("writable");
        symlink(binaries::tickwalk(), bin.join("tickwalk")).expect("writable");
        symlink(binaries::agent(), bin.join("libtickwalk.so")).expect("writable");
        let java_bin = jdk.home.join("bin");
        let path = format!(
            "{}:{}:{}",
            bin.display(),
            java_bin.display(),
            std::env::var("PATH").expect("PATH is set")
        );
        let desk = Self { folder, path, agents: free_port(), http: free_port(), running: RefCell::default() };
        for jar in ["app.jar", "base.jar", "head.jar"] {
            desk.make_jar(jar);
        }
        desk.write_program("gradlew", "#!/bin/sh\nexec java -jar app.jar\n");
        std::fs::create_dir(desk.folder.path().join("src")).expect("writable");
        std::fs::copy(
            workspace().join("java-tests/workloads/Burner.java"),
            desk.folder.path().join("src/Burner.java"),
        )
        .expect("the workload's source");
        desk.succeed("tickwalk record -- java -jar app.jar");
        for copy in ["before.tickwalk", "after.tickwalk", "app.tickwalk"] {
            std::fs::copy(desk.folder.path().join("recording.tickwalk"), desk.folder.path().join(copy))
                .expect("a recording");
        }
        desk
    }

    fn make_jar(&self, name: &str) {
        let classes = java_tests::classes();
        let script = "import sys, zipfile\n\
            jar = zipfile.ZipFile(sys.argv[1], 'w')\n\
            jar.writestr('META-INF/MANIFEST.MF', 'Manifest-Version: 1.0\\nMain-Class: Burner\\n')\n\
            for name in ('Burner', 'ThreadCpu'): jar.write(f'{sys.argv[2]}/{name}.class', f'{name}.class')\n";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(self.folder.path().join(name)).arg(classes);
        let made = run(command, |_| ());
        assert_eq!(made.exit_code(), 0, "{}", made.stderr);
    }

    fn write_program(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("writable");
    }

    /// Returns a command as this machine runs it: paths, ports and process ids of the page are replaced, and three
    /// seconds stand for the duration of a profile.
    fn localised(&self, command: &str, pid: Option<i32>) -> String {
        let folder = self.folder.path().display().to_string();
        // `/tmp/` comes first, because the paths of this machine may begin with it.
        let mut text = command
            .replace("/tmp/", &format!("{folder}/"))
            .replace("/path/to/libtickwalk.so", &binaries::agent().display().to_string())
            .replace("/var/lib/tickwalk", &format!("{folder}/store"))
            .replace("127.0.0.1:4170", &format!("127.0.0.1:{}", self.agents))
            .replace("127.0.0.1:4172", &format!("127.0.0.1:{}", self.http))
            .replace("--duration 10s", "--duration 3s")
            .replace("--duration 30s", "--duration 3s");
        if let Some(pid) = pid {
            text = text
                .split(' ')
                .map(|word| if word == "PID" { pid.to_string() } else { word.to_owned() })
                .collect::<Vec<_>>()
                .join(" ");
        }
        text
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", line])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("TICKWALK_LISTEN", format!("127.0.0.1:{}", self.agents))
            .env("TICKWALK_HTTP", format!("127.0.0.1:{}", self.http));
        command
    }

    #[track_caller]
    fn succeed(&self, line: &str) {
        let finished = run(self.command(line), |_| ());
        assert_eq!(finished.exit_code(), 0, "{line}\n{}{}", finished.stdout, finished.stderr);
    }

    /// Starts a command that runs until it is stopped, and returns it once it has printed a line.
    fn start(&self, line: &str) -> Running {
        // A view that is drawn again and again needs a terminal.
        let line = match line.starts_with("tickwalk top") {
            true => format!("exec script -qec '{line}' /dev/null"),
            false => format!("exec {line} 2>&1"),
        };
        let mut command = self.command(&line);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("bash starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut text = String::new();
        while !text.contains("ready") && !text.contains("Hot methods") {
            let read = output.read_line(&mut text).expect("a readable pipe");
            assert_ne!(read, 0, "{line} ended: {text}");
        }
        // The pipe is read on, so that the command is never blocked by it.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Running(child)
    }

    fn run_block(&self, commands: &[String]) {
        let needs_jvm = commands.iter().any(|command| command.split(' ').any(|word| word == "PID"));
        match needs_jvm {
            false => self.run_commands(commands, None),
            true => self.beside_jvm(|pid| self.run_commands(commands, Some(pid))),
        }
    }

    fn run_commands(&self, commands: &[String], pid: Option<i32>) {
        for command in commands {
            let line = self.localised(command, pid);
            let endless = ["tickwalk collect", "tickwalk serve", "tickwalk top -p"];
            if endless.iter().any(|start| line.starts_with(start)) {
                self.running.borrow_mut().push(self.start(&line));
            } else {
                self.succeed(&line);
            }
        }
    }

    fn beside_jvm(&self, act: impl FnOnce(i32)) {
        let end_file = self.folder.path().join("end-file");
        let jdk = Jdk::find(21).expect("JDK 21");
        let mut act = Some(act);
        Workload::burner(0, &end_file).run_unprofiled_watched(&jdk, |pid, _| {
            if let Some(act) = act.take() {
                act(pid);
                std::fs::write(&end_file, "").expect("writable");
            }
        });
        std::fs::remove_file(&end_file).expect("the file exists");
    }
}

/// A command in the background; dropping it ends it and waits for its end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a process id"));
        // It may have ended by itself.
        let _ = kill(pid, Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn check_page(name: &str) {
    let Some(jdk) = Jdk::find(21) else {
        assert_ne!(std::env::var("TICKWALK_REQUIRE_JDKS").as_deref(), Ok("1"), "JDK 21 is missing");
        return eprintln!("JDK 21 is missing (java-tests/fetch): the commands of {name} are not run");
    };
    let text = std::fs::read_to_string(workspace().join(name)).expect("a page");
    let runnable = blocks(&text, "sh").into_iter().filter(|block| block.iter().all(|line| !builds(line)));
    let runnable: Vec<_> = runnable.collect();
    assert!(!runnable.is_empty(), "{name} has no block of commands");
    let desk = Desk::new(&jdk);
    for block in &runnable {
        desk.run_block(block);
    }
}

/// Whether a command builds or tests the project itself, which the caller of this test does.
fn builds(line: &str) -> bool {
    ["cargo build", "./demo", "./test", "cargo test"].iter().any(|start| line.starts_with(start))
}

macro_rules! pages {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                check_page($name);
            }
        )*

        /// Pages whose commands are run.
        const PAGES: &[&str] = &[$($name),*];
    };
}

pages! {
    readme: "README.md";
    getting_started: "docs/getting-started.md";
    profiling: "docs/profiling.md";
    reading: "docs/reading.md";
    assistants: "docs/assistants.md";
    containers: "docs/containers.md";
    collector: "docs/collector.md";
    options: "docs/options.md";
}

/// Every page with commands is in the list, and no block that could run is marked as an example.
#[test]
fn every_page_is_listed() {
    let mut complaints = String::new();
    let pages = std::fs::read_dir(workspace().join("docs")).expect("docs/").flatten();
    for page in pages.filter(|page| page.path().extension().is_some_and(|end| end == "md")) {
        let name = format!("docs/{}", page.file_name().to_string_lossy());
        let text = std::fs::read_to_string(page.path()).expect("a page");
        if !blocks(&text, "sh").is_empty() && !PAGES.contains(&name.as_str()) {
            let _ = writeln!(complaints, "{name}: has commands that no test runs");
        }
        for line in blocks(&text, "sh").concat() {
            let program = line.split(' ').next().unwrap_or_default();
            if !RUNS.contains(&program) {
                let _ = writeln!(complaints, "{name}: `{program}` is not a program of this test");
            }
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
}
