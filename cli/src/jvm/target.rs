//! A JVM as named on the command line: by its process id, or by a part of its command.
//!
//! A name is looked for in the main class or jar, as `jps` shows it, then anywhere in the command. If it matches
//! several JVMs, they are listed and none is chosen.

use std::convert::Infallible;
use std::str::FromStr;

use super::list::{self, Row};

/// Name that matches every JVM, as in async-profiler's launcher.
const ONLY: &str = "jps";

/// A JVM as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Pid(i32),
    Name(String),
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Pid))
    }
}

/// Why a name does not identify a JVM.
#[derive(Debug, thiserror::Error)]
pub enum NoTarget {
    #[error("no JVM has '{0}' in its command; 'tickwalk list' shows the JVMs of this machine")]
    None(String),
    #[error("'{0}' stands for several JVMs; name one of them by its process id: {rows}", rows = listed(.1))]
    Several(String, Vec<Row>),
    #[error("cannot read /proc: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl Target {
    pub fn pid(&self) -> Result<i32, NoTarget> {
        match self {
            Self::Pid(pid) => Ok(*pid),
            Self::Name(name) => chosen(name, list::jvms()?),
        }
    }
}

fn chosen(name: &str, jvms: Vec<Row>) -> Result<i32, NoTarget> {
    let is_main = |row: &Row| {
        let main = main_of(&row.program);
        main == name || main.rsplit(['.', '/']).next() == Some(name) || file_name(main) == name
    };
    let any = |row: &Row| name == ONLY || row.program.contains(name);
    let (main, others): (Vec<Row>, Vec<Row>) = jvms.into_iter().partition(is_main);
    let found = if main.is_empty() { others.into_iter().filter(any).collect() } else { main };
    match &found[..] {
        [] => Err(NoTarget::None(name.to_owned())),
        [row] => Ok(row.pid),
        _ => Err(NoTarget::Several(name.to_owned(), found)),
    }
}

/// Returns the main class or jar, with which a JVM's command begins.
fn main_of(program: &str) -> &str {
    program.split(' ').next().unwrap_or_default()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn listed(rows: &[Row]) -> String {
    const SHOWN_CHARACTERS: usize = 80;
    let line = |row: &Row| {
        let program: String = row.program.chars().take(SHOWN_CHARACTERS).collect();
        format!("{} ({program})", row.pid)
    };
    rows.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::list::State;
    use super::*;

    fn row(pid: i32, program: &str) -> Row {
        Row {
            pid,
            user: "me".to_owned(),
            jdk: None,
            state: State::Idle,
            container: None,
            program: program.to_owned(),
        }
    }

    #[test]
    fn a_name_stands_for_one_jvm_or_none() {
        let jvms = || {
            vec![
                row(1, "com.example.Shop --port 80"),
                row(2, "/opt/shop/worker.jar Shop"),
                row(3, "com.example.ShopAdmin"),
            ]
        };
        let pid = |name: &str| chosen(name, jvms()).ok();
        assert_eq!(pid("com.example.Shop"), Some(1));
        assert_eq!(pid("Shop"), Some(1), "the main class before other parts");
        assert_eq!(pid("worker.jar"), Some(2));
        assert_eq!(pid("Admin"), Some(3), "a part of the command");
        let several = chosen("example", jvms()).expect_err("two").to_string();
        assert!(several.contains(": 1 (com.example.Shop --port 80), 3 (com.example.ShopAdmin)"), "{several}");
        assert!(!several.contains('\n'), "{several}");
        assert!(matches!(chosen("other", jvms()), Err(NoTarget::None(_))));
        assert!(matches!(chosen("jps", jvms()), Err(NoTarget::Several(..))));
        assert_eq!(chosen("jps", vec![row(7, "A")]).ok(), Some(7));
    }

    #[test]
    fn numbers_are_process_ids() {
        assert_eq!("4321".parse(), Ok(Target::Pid(4321)));
        assert_eq!("app.jar".parse(), Ok(Target::Name("app.jar".to_owned())));
    }
}
