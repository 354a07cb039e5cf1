//! Options for forwarding what a collector stores: `[forward]` in its file, `--forward...` on the command line.
//!
//! Profiles leave the machine only by an explicit option. OpenTelemetry's variables are often set for a whole machine,
//! for other programs, so they apply only to a receiver that is given as `env`: `OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT`,
//! else `OTEL_EXPORTER_OTLP_ENDPOINT` (unless `..._PROTOCOL` is not gRPC), and `..._HEADERS`, which are sent only to
//! that receiver.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use collector::forward::{Settings, Target};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::options::values::{Size, Time, from_text};

/// Options of the command line and the environment, or of the table `[forward]` of the file.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardArguments {
    /// Also forward everything as OTLP profiles over gRPC to http(s)://HOST:4317, or to the receiver that OpenTelemetry's
    /// variables name (`env`); can be repeated; needs --store
    #[arg(long, value_name = "URL", env = "TICKWALK_FORWARD", value_delimiter = ',')]
    #[serde(rename = "to")]
    forward: Vec<String>,
    /// Header for the receivers of --forward; can be repeated
    #[arg(
        long,
        value_name = "NAME=VALUE",
        env = "TICKWALK_FORWARD_HEADER",
        hide_env_values = true,
        value_delimiter = ','
    )]
    #[serde(rename = "headers")]
    forward_header: Vec<String>,
    /// Trusted certificates (PEM) for receivers of https://, instead of the system's
    #[arg(long, value_name = "FILE", env = "TICKWALK_FORWARD_CA")]
    #[serde(rename = "ca")]
    forward_ca: Option<PathBuf>,
    /// Time between two requests; samples of that time are summed [default: 10s]
    #[arg(long, value_name = "TIME", env = "TICKWALK_FORWARD_EVERY")]
    #[serde(rename = "every", deserialize_with = "from_text")]
    forward_every: Option<Time>,
    /// Most bytes of requests kept for an unreachable receiver [default: 64M]
    #[arg(long, value_name = "SIZE", env = "TICKWALK_FORWARD_BUFFER")]
    #[serde(rename = "buffer", deserialize_with = "from_text")]
    forward_buffer: Option<Size>,
}

/// Options in effect.
#[derive(Debug)]
pub struct Forward {
    /// The receivers; empty if nothing is forwarded.
    pub targets: Vec<Target>,
    /// Interval, buffer and limits of forwarding.
    pub settings: Settings,
}

impl ForwardArguments {
    /// Merges the options with `file`, for a collector with or without a store.
    ///
    /// # Errors
    /// If an address, a header or a file is not valid, or if there are receivers but no store.
    pub fn resolve(self, file: ForwardArguments, has_store: bool) -> anyhow::Result<Forward> {
        let or = |given: Vec<String>, file: Vec<String>| if given.is_empty() { file } else { given };
        let addresses = or(self.forward, file.forward);
        anyhow::ensure!(
            addresses.is_empty() || has_store,
            "--forward needs --store: a collector without a store cannot forward"
        );
        let headers = or(self.forward_header, file.forward_header);
        let of_receivers = [
            ("--forward-header", !headers.is_empty()),
            ("--forward-ca", self.forward_ca.is_some() || file.forward_ca.is_some()),
            ("--forward-every", self.forward_every.or(file.forward_every).is_some()),
            ("--forward-buffer", self.forward_buffer.or(file.forward_buffer).is_some()),
        ];
        if let Some((option, _)) = of_receivers.iter().find(|(_, is_given)| *is_given && addresses.is_empty())
        {
            anyhow::bail!("{option} has no effect without --forward; add --forward or leave it out");
        }
        let ca = self.forward_ca.or(file.forward_ca).map(|path| certificates(&path)).transpose()?;
        let targets = addresses.iter().map(|given| {
            let mut headers = headers.clone();
            let address = if given == ENVIRONMENT {
                headers.extend(conventional_headers(|name| env::var(name).ok()));
                endpoint(|name| env::var(name).ok()).context(
                    "--forward env: set OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT \
                    to a receiver of gRPC",
                )?
            } else {
                given.clone()
            };
            let target = Target::new(&address).with_context(|| format!("cannot forward to '{address}'"))?;
            let target = ca.iter().fold(target, |target, pem| target.with_certificates(pem.clone()));
            headers.iter().try_fold(target, |target, header| {
                // The value may be a secret, so the message has only the name.
                let name = header.split('=').next().unwrap_or_default().to_owned();
                target.with_header(header).with_context(|| format!("header '{name}'"))
            })
        });
        let targets = targets.collect::<anyhow::Result<_>>()?;
        let default = Settings::default();
        let every = self.forward_every.or(file.forward_every).map_or(default.every, |time| time.0);
        anyhow::ensure!(!every.is_zero(), "--forward-every must be at least 1s");
        let buffer = self.forward_buffer.or(file.forward_buffer);
        let buffer_bytes = buffer.map_or(default.buffer_bytes, |size| size.0);
        Ok(Forward { targets, settings: Settings { every, buffer_bytes, ..default } })
    }
}

/// Address that stands for the receiver of OpenTelemetry's variables.
const ENVIRONMENT: &str = "env";

fn certificates(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("--forward-ca: cannot read {}", path.display()))
}

/// Returns the value of the variable for profiles, else of the one for all signals; `None` if empty.
fn conventional(get: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    ["OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_EXPORTER_OTLP_"]
        .iter()
        .find_map(|prefix| get(&format!("{prefix}{name}")))
        .filter(|value| !value.is_empty())
}

fn endpoint(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_other = conventional(&get, "PROTOCOL").is_some_and(|protocol| protocol != "grpc");
    if is_other { None } else { conventional(&get, "ENDPOINT") }
}

/// Returns the headers of the variable: comma separated with percent-encoded values, as OpenTelemetry specifies.
fn conventional_headers(get: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let text = conventional(&get, "HEADERS").unwrap_or_default();
    let decoded = |header| percent_decode_str(header).decode_utf8_lossy().into_owned();
    text.split(',').filter(|header| !header.trim().is_empty()).map(decoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn variables_of_exporters_count() {
        let general = &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317")];
        assert_eq!(endpoint(of(general)).as_deref(), Some("http://a:4317"));
        let special = &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"),
            ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://b:4317"),
        ];
        assert_eq!(endpoint(of(special)).as_deref(), Some("http://b:4317"));
        let http = &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ];
        assert_eq!(endpoint(of(http)), None);
        let headers = &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x%3D,tenant=1,,a=100%")];
        assert_eq!(conventional_headers(of(headers)), ["authorization=Bearer x=", "tenant=1", "a=100%"]);
    }

    #[test]
    fn nothing_leaves_unless_it_is_asked_for() {
        // Whatever the environment of this test names, no receiver is given.
        let forward =
            ForwardArguments::default().resolve(ForwardArguments::default(), true).expect("good options");
        assert!(forward.targets.is_empty());
    }

    #[test]
    fn a_store_is_needed_and_addresses_are_checked() {
        let to = |address: &str| ForwardArguments { forward: vec![address.to_owned()], ..Default::default() };
        assert!(to("http://a:4317").resolve(ForwardArguments::default(), false).is_err());
        assert!(to("a:4317").resolve(ForwardArguments::default(), true).is_err());
        let text = "to = [\"http://b:4317\"]\nheaders = [\"tenant=1\"]\nevery = \"2s\"";
        let file = || toml::from_str::<ForwardArguments>(text).expect("good file");
        let forward = ForwardArguments::default().resolve(file(), true).expect("good options");
        assert_eq!(forward.targets[0].address(), "http://b:4317");
        assert_eq!(forward.settings.every.as_secs(), 2);
        let forward = to("http://a:4317").resolve(file(), true).expect("good options");
        assert_eq!((forward.targets.len(), forward.targets[0].address()), (1, "http://a:4317"));
    }
}
