//! Removes secrets from the program's command line before it leaves the process.
//!
//! Problem: the first message of a stream has the program's arguments, which may contain passwords.
//! Approach: the value of an argument whose name looks like that of a secret is replaced, and so are credentials in URLs.
//! `sun.java.command` joins the arguments with spaces, so arguments that contain spaces are found by `/proc/self/cmdline`.
//! Invariant: a value is hidden up to the end of its argument, even where it may end earlier.

use profile::text::pattern::matches;

/// Parts of names that mark a secret, in small letters.
const SECRET_PARTS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
];

/// Text in place of a secret.
const HIDDEN: &str = "***";

/// Characters in front of a name inside an argument, as in `jdbc:h2:mem:a;password=b`.
const BEFORE_NAME: &[char] = &['?', '&', ';', ',', '{', '"', '\'', '('];

/// Which names mark secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redaction {
    /// Patterns of names beside the built-in ones, in small letters; `*` stands for any text.
    patterns: Vec<String>,
}

impl Redaction {
    /// Reads patterns that are separated by colons; returns `None` if one of them is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let patterns: Vec<String> = text.split(':').map(str::to_lowercase).collect();
        patterns.iter().all(|pattern| !pattern.is_empty()).then_some(Self { patterns })
    }

    /// Returns the command line of this process, as `sun.java.command` has it, without secrets.
    pub fn own_command(&self, command: &str) -> String {
        let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let arguments = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        self.command(command, &arguments.map(Into::into).collect::<Vec<String>>())
    }

    /// Returns `command` without secrets; `arguments` are those it was joined from, as far as they are known.
    fn command(&self, command: &str, arguments: &[String]) -> String {
        let mut command = command.to_owned();
        for (argument, next) in arguments.iter().zip(arguments.iter().skip(1).map(Some).chain([None])) {
            if self.hides_next(argument)
                && let Some(next) = next.filter(|next| has_space(next))
            {
                command = command.replace(&format!("{argument} {next}"), &format!("{argument} {HIDDEN}"));
            } else if has_space(argument) {
                command = command.replace(argument, &self.argument(argument));
            }
        }
        let mut is_hidden = false;
        let mut words = Vec::new();
        for word in command.split(char::is_whitespace) {
            if word.is_empty() {
                words.push(String::new());
                continue;
            }
            let is_value = std::mem::replace(&mut is_hidden, self.hides_next(word));
            words.push(if is_value && !word.starts_with('-') {
                HIDDEN.to_owned()
            } else {
                self.argument(word)
            });
        }
        words.join(" ")
    }

    /// Returns whether the argument after `argument` is a secret, as in `--password VALUE`.
    fn hides_next(&self, argument: &str) -> bool {
        argument.starts_with('-') && !argument.contains(['=', ':']) && self.is_secret(argument)
    }

    /// Returns one argument without secrets.
    fn argument(&self, argument: &str) -> String {
        let argument = without_credentials(argument);
        for (at, separator) in argument.match_indices(['=', ':']) {
            let before = argument.get(..at).unwrap_or_default();
            let name = before.rsplit(BEFORE_NAME).find(|part| !part.is_empty()).unwrap_or_default();
            if self.is_secret(name) {
                return format!("{before}{separator}{HIDDEN}");
            }
        }
        argument
    }

    fn is_secret(&self, name: &str) -> bool {
        let name = name.trim_start_matches('-').to_lowercase();
        let name = name.strip_prefix("d").filter(|_| name.contains('.')).into_iter().chain([name.as_str()]);
        name.into_iter().any(|name| {
            let letters = name.replace(['-', '_', '.'], "");
            SECRET_PARTS.iter().any(|part| letters.contains(part))
                || self.patterns.iter().any(|pattern| matches(pattern, name))
        })
    }
}

fn has_space(text: &str) -> bool {
    text.contains(char::is_whitespace)
}

/// Hides what stands before the host in URLs: `//user:password@host`, or `//token@host`.
fn without_credentials(argument: &str) -> String {
    let mut pieces = argument.split("//");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let authority = piece.find(['/', '?', '#']).unwrap_or(piece.len());
        let (authority, rest) = piece.split_at(authority);
        result.push_str("//");
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split_once(':').map_or(String::new(), |(name, _)| format!("{name}:"));
                result.push_str(&format!("{user}{HIDDEN}@{host}"));
            }
            None => result.push_str(authority),
        }
        result.push_str(rest);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &str) {
        assert_eq!(Redaction::default().command(command, &[]), expected);
    }

    #[test]
    fn arguments_without_secrets_stay() {
        for command in ["", "Main", "org.acme.TokenService --port=80 a:b C:/x http://host:80/a?b=c", "a  b"] {
            check(command, command);
        }
    }

    #[test]
    fn values_of_secret_names_are_hidden() {
        check("Main --db.password=a b", "Main --db.password=*** b");
        check("Main -Dacme.apiKey=a,b;c=d e", "Main -Dacme.apiKey=*** e");
        check("Main --api-key a --access_key b -p c", "Main --api-key *** --access_key *** -p c");
        check("Main --password  a b", "Main --password  *** b");
        check("Main --no-token --port 80", "Main --no-token --port 80");
        check("Main {\"user\":\"u\",\"Password\":\"p\"}", "Main {\"user\":\"u\",\"Password\":***");
        check("Main jdbc:h2:mem:a;USER=sa;PASSWORD=b;c=d", "Main jdbc:h2:mem:a;USER=sa;PASSWORD=***");
        check("Main http://host/?user=a&token=b", "Main http://host/?user=a&token=***");
    }

    #[test]
    fn credentials_in_urls_are_hidden() {
        check("Main --url=postgres://me:a@b@host:5432/db", "Main --url=postgres://me:***@host:5432/db");
        check("Main https://key@host/a@2", "Main https://***@host/a@2");
        check("Main mongodb://a:b@h1,h2/?x=1", "Main mongodb://a:***@h1,h2/?x=1");
    }

    #[test]
    fn values_with_spaces_are_hidden_whole() {
        let arguments =
            ["java", "Main", "--password", "two words", "--key-secret=three more words", "last one"];
        let arguments = arguments.map(str::to_owned);
        let command = "Main --password two words --key-secret=three more words last one";
        let expected = "Main --password *** --key-secret=*** last one";
        assert_eq!(Redaction::default().command(command, &arguments), expected);
    }

    #[test]
    fn patterns_add_names() {
        let redaction = Redaction::parse("*PIN*:acme.license").expect("two patterns");
        let expected = "Main --card-pin-code=*** -Dacme.license=*** acme.licensee=b";
        let command = "Main --card-pin-code=1 -Dacme.license=a acme.licensee=b";
        assert_eq!(redaction.command(command, &[]), expected);
        for text in ["", ":", "a:", "a::b"] {
            assert_eq!(Redaction::parse(text), None, "{text:?}");
        }
    }
}
