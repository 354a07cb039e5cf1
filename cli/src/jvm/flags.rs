//! Options that a JVM was started with, from its arguments, its environment and the files that these name.
//!
//! Problem: a JVM without performance data does not publish whether it can be attached to, and if it cannot, SIGQUIT
//! makes it print its stacks.
//! Approach: look for the flag in all places from which the VM reads options; the last one counts.
//! Limit: the options of a JVM that a program creates through JNI are not visible.
//! Sources: `runtime/arguments.cpp` (`Arguments::parse`), `launcher/args.c` (`@file`, `JDK_JAVA_OPTIONS`), JDK 11 to
//! 25.

use std::path::Path;

use super::foreign::{self, Links};
use super::process::Process;

const ON: &str = "-XX:+DisableAttachMechanism";
const OFF: &str = "-XX:-DisableAttachMechanism";
/// Options with the path of a file with further options.
const FILES: [&str; 3] = ["@", "-XX:VMOptionsFile=", "-XX:Flags="];
/// Most bytes of such a file that are read.
const MAX_BYTES: u64 = 1 << 20;

/// Returns whether the options of a JVM forbid attaching.
pub fn forbids_attaching(process: Process) -> bool {
    let variables = process.environment(&["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"]);
    let [tool, launcher, last] = &variables[..] else { return false };
    let words = |text: &Option<String>| -> Vec<String> {
        text.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect()
    };
    let arguments: Vec<String> = process.arguments().into_iter().skip(1).collect();
    let all = [words(tool), words(launcher), vm_options(&arguments).to_vec(), words(last)].concat();
    is_on(&all, |path| read(process, Path::new(path)))
}

/// Returns main class, or jar, and arguments of the program among the arguments of the launcher.
pub fn program(arguments: &[String]) -> String {
    let arguments = arguments.get(1..).unwrap_or_default();
    let mut rest = arguments.get(vm_options(arguments).len()..).unwrap_or_default();
    if let [option, program @ ..] = rest
        && NAMING.contains(&option.as_str())
    {
        rest = program;
    }
    rest.join(" ")
}

/// Options that are followed by the program.
const NAMING: [&str; 3] = ["-jar", "-m", "--module"];

/// Returns the arguments before the main class.
fn vm_options(arguments: &[String]) -> &[String] {
    const WITH_VALUE: [&str; 7] = [
        "-cp",
        "-classpath",
        "--class-path",
        "-p",
        "--module-path",
        "--add-modules",
        "--upgrade-module-path",
    ];
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        let is_option = argument.starts_with('-') || argument.starts_with('@');
        if !is_option || NAMING.contains(&argument.as_str()) {
            break;
        }
        at += if WITH_VALUE.contains(&argument.as_str()) { 2 } else { 1 };
    }
    arguments.get(..at).unwrap_or(arguments)
}

/// Returns whether the flag is on after all of `options`; `read` returns the words of a file.
fn is_on(options: &[String], read: impl Fn(&str) -> Vec<String>) -> bool {
    let mut on = false;
    for option in options {
        let file = FILES.iter().find_map(|prefix| option.strip_prefix(prefix));
        let listed = file.map(&read).unwrap_or_default();
        for word in [option].into_iter().chain(&listed) {
            // A file of flags has them without "-XX:".
            on = match word.trim_matches(['"', '\'']) {
                ON | "+DisableAttachMechanism" => true,
                OFF | "-DisableAttachMechanism" => false,
                _ => on,
            };
        }
    }
    on
}

/// Reads the words of a file as the process sees it, relative to its working directory.
fn read(process: Process, path: &Path) -> Vec<String> {
    // The working directory of the process, as it sees it.
    let working = || std::fs::read_link(process.file("cwd")).unwrap_or_default();
    let path = if path.is_absolute() { path.to_owned() } else { working().join(path) };
    let opened = foreign::open(&process.root(), &path, Links::Followed);
    // A file that cannot be read counts as empty.
    let text = opened.and_then(|file| foreign::read(file, MAX_BYTES)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &str, expected: bool) {
        let words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        let file = |path: &str| match path {
            "flags" => vec!["+DisableAttachMechanism".to_owned()],
            "arguments" => vec!["-Xmx1g".to_owned(), format!("\"{ON}\"")],
            _ => Vec::new(),
        };
        assert_eq!(is_on(vm_options(&words), file), expected, "{options}");
    }

    #[test]
    fn the_last_option_counts_and_those_of_the_program_do_not() {
        check("", false);
        check("-Xmx1g -XX:+DisableAttachMechanism -jar app.jar", true);
        check("-XX:+DisableAttachMechanism -XX:-DisableAttachMechanism Main", false);
        check("-cp classes Main -XX:+DisableAttachMechanism", false);
        check("-jar app.jar -XX:+DisableAttachMechanism", false);
        check("@arguments Main", true);
        check("-XX:Flags=flags Main", true);
        check("-XX:Flags=missing Main", false);
    }

    #[test]
    fn the_program_stands_behind_the_options() {
        let named =
            |command: &str| program(&command.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(named("java -Xmx1g -cp a:b shop.Main --port 80"), "shop.Main --port 80");
        assert_eq!(named("/opt/java -jar app.jar x"), "app.jar x");
        assert_eq!(named("java --module-path mods -m shop/shop.Main"), "shop/shop.Main");
        assert_eq!(named("java"), "");
    }
}
