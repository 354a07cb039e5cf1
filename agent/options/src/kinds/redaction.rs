//! Removes secrets from the program's command line before it leaves the process.
//!
//! Problem: the first message of a stream has the program's arguments, which may contain passwords.
//! Approach: the value of an argument whose name looks like that of a secret is replaced, and so are credentials in
//! URLs. `sun.java.command` joins the arguments with spaces, so arguments that contain spaces are found by
//! `/proc/self/cmdline`.
//! Invariant: a value is hidden up to the end of its argument, even where it may end earlier.

use profile::text::pattern::matches;

/// Parts of names that mark a secret, in small letters.
const SECRET_PARTS: &str =
    "password passwd passphrase pwd secret token credential apikey accesskey privatekey authorization";

/// Words that mark a secret as a whole word of a name: parts of other words, such as `path` and `keyboard`, mean
/// nothing.
const SECRET_WORDS: &str = "pass dbpass userpass pw cred creds auth oauth jwt bearer pat key keys sig signature pin otp \
     cookie";

/// Last words of names whose values are no secrets but a place, a size or a kind, as in `key-file`.
const NO_SECRET_WORDS: &str = "path file dir folder store url uri host port type alg algorithm size length count timeout ttl \
     enabled mode class";

/// Text in place of a secret.
const HIDDEN: &str = "***";

/// Characters in front of a name inside an argument, as in `jdbc:h2:mem:a;password=b`.
const BEFORE_NAME: &[char] = &['?', '&', ';', ',', '{', '"', '\'', '('];

/// The choice of names that mark secrets.
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
            // A value may look like an option, even like one whose own value is a secret.
            let is_value = std::mem::replace(&mut is_hidden, self.hides_next(word));
            words.push(if is_value { HIDDEN.to_owned() } else { self.argument(word) });
        }
        words.join(" ")
    }

    /// Returns whether the argument after `argument` is a secret, as in `--password VALUE`. An option such as
    /// `--no-password` has no value.
    fn hides_next(&self, argument: &str) -> bool {
        let name = argument.trim_start_matches('-');
        let has_value =
            !argument.contains(['=', ':']) && !name.starts_with("no-") && !name.starts_with("no_");
        has_value && name.len() < argument.len() && self.is_secret(argument)
    }

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
        let plain = name.trim_start_matches('-');
        let of_property = name.strip_prefix("-D");
        of_property.into_iter().chain([plain]).any(|name| {
            let small = name.to_lowercase();
            let letters = small.replace(['-', '_', '.'], "");
            SECRET_PARTS.split(' ').any(|part| letters.contains(part))
                || self.patterns.iter().any(|pattern| matches(pattern, &small))
                || has_secret_word(name)
        })
    }
}

/// Returns whether a word of a name in any style (`db-pass`, `DB_PASS`, `dbPass`) marks a secret. A path is no name.
fn has_secret_word(name: &str) -> bool {
    if name.contains('/') {
        return false;
    }
    let words = words(name);
    let is_one_of = |word: &String, known: &str| known.split(' ').any(|known| known == word);
    !words.last().is_some_and(|last| is_one_of(last, NO_SECRET_WORDS))
        && words.iter().any(|word| is_one_of(word, SECRET_WORDS))
}

/// Returns the words of a name, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut last = ' ';
    for letter in name.chars() {
        let begins = !letter.is_alphanumeric() || last.is_lowercase() && letter.is_uppercase();
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        last = letter;
    }
    words.retain(|word| !word.is_empty());
    words
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
        check("Main --password -dash --pass --x --auth y", "Main --password *** --pass *** --auth ***");
        check("Main --password --token a", "Main --password *** ***");
        check("Main {\"user\":\"u\",\"Password\":\"p\"}", "Main {\"user\":\"u\",\"Password\":***");
        check("Main jdbc:h2:mem:a;USER=sa;PASSWORD=b;c=d", "Main jdbc:h2:mem:a;USER=sa;PASSWORD=***");
        check("Main http://host/?user=a&token=b", "Main http://host/?user=a&token=***");
    }

    #[test]
    fn words_of_a_name_mark_secrets() {
        for name in [
            "--pass",
            "--cred",
            "--auth",
            "--jwt",
            "--pat",
            "--key",
            "--sig",
            "-pass",
            "--db-pass",
            "--ssl.keyPass",
        ] {
            check(&format!("Main {name} a b"), &format!("Main {name} *** b"));
        }
        for name in ["DB_PASS", "-Dpass", "-Dacme.jwt", "--apiAuth", "x?sig"] {
            check(&format!("Main {name}=a b"), &format!("Main {name}=*** b"));
        }
        check("Main https://h/?a=b&sig=v", "Main https://h/?a=b&sig=***");
        for plain in [
            "--path a",
            "--keyboard a",
            "--pattern a",
            "--compass a",
            "--author a",
            "--signal a",
            "--key-file a",
            "--passes 3",
            "--auth-type=basic",
            "--keystore.path=/a",
            "http://auth:8080/key:1",
            "org.acme.AuthService 1",
        ] {
            check(&format!("Main {plain}"), &format!("Main {plain}"));
        }
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
