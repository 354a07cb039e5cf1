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

use crate::options::values::{Size, Time};

/// Options of the command line and the environment, or of the table `[forward]` of the file.
#[derive(Debug, Default, Args)]
pub struct ForwardArguments {
    /// Also forward everything as OTLP profiles over gRPC to http(s)://HOST:4317, or with the value env to the
    /// receiver in OpenTelemetry's variables; can be repeated; needs --store
    #[arg(long, value_name = "URL", env = "TICKWALK_FORWARD", value_delimiter = ',')]
    forward: Vec<String>,
    /// Header for the receivers of --forward; can be repeated
    #[arg(
        long,
        value_name = "NAME=VALUE",
        env = "TICKWALK_FORWARD_HEADER",
        hide_env_values = true,
        value_delimiter = ','
    )]
    forward_header: Vec<String>,
    /// Trusted certificates (PEM) for receivers of https://, instead of the system's
    #[arg(long, value_name = "FILE", env = "TICKWALK_FORWARD_CA")]
    forward_ca: Option<PathBuf>,
    /// Time between two requests, whose samples are summed [default: 10s]
    #[arg(long, value_name = "TIME", env = "TICKWALK_FORWARD_EVERY")]
    forward_every: Option<Time>,
    /// Maximum size of the requests kept for an unreachable receiver [default: 64M]
    #[arg(long, value_name = "SIZE", env = "TICKWALK_FORWARD_BUFFER")]
    forward_buffer: Option<Size>,
}

/// Options in effect.
#[derive(Debug)]
pub struct Forward {
    /// The receivers; empty if nothing is forwarded.
    pub targets: Vec<Target>,
    pub settings: Settings,
}

impl ForwardArguments {
    /// Checks the options, for a collector with or without a store.
    pub fn resolve(self, has_store: bool) -> anyhow::Result<Forward> {
        let Self { forward: addresses, forward_header: headers, forward_ca, forward_every, forward_buffer } =
            self;
        anyhow::ensure!(
            addresses.is_empty() || has_store,
            "--forward needs --store: a collector without a store cannot forward"
        );
        let of_receivers = [
            ("--forward-header", !headers.is_empty()),
            ("--forward-ca", forward_ca.is_some()),
            ("--forward-every", forward_every.is_some()),
            ("--forward-buffer", forward_buffer.is_some()),
        ];
        if let Some((option, _)) = of_receivers.iter().find(|(_, is_given)| *is_given && addresses.is_empty())
        {
            anyhow::bail!("{option} has no effect without --forward; add --forward or leave it out");
        }
        let ca = forward_ca.map(|path| certificates(&path)).transpose()?;
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
        let every = forward_every.map_or(default.every, |Time(time)| time);
        let buffer_bytes = forward_buffer.map_or(default.buffer_bytes, |Size(bytes)| bytes);
        Ok(Forward { targets, settings: Settings { every, buffer_bytes, ..default } })
    }
}

/// Address that stands for the receiver in OpenTelemetry's variables.
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
    fn the_variable_for_profiles_comes_before_the_general_one() {
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
    fn without_the_option_nothing_is_forwarded() {
        // Even if this test's environment has OpenTelemetry's variables.
        let forward = ForwardArguments::default().resolve(true).expect("good options");
        assert!(forward.targets.is_empty());
    }

    #[test]
    fn a_store_is_needed_and_addresses_are_checked() {
        let to = |address: &str| ForwardArguments { forward: vec![address.to_owned()], ..Default::default() };
        assert!(to("http://a:4317").resolve(false).is_err());
        assert!(to("a:4317").resolve(true).is_err());
        assert!(to("http://a:4317").resolve(true).is_ok());
    }
}
