//! `tickwalk lake`: compaction and retention of a lake, and its views for SQL engines.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use lake::sql::Engine;
use lake::storage::{Lake, LakeUrl};
use lake::upkeep::{Done, compact, expire};
use profile::text::quantity::count;

use crate::options::values::Age;
use crate::output::{tell, write_answer};
use crate::source::now_ns;

#[derive(Debug, Args)]
#[command(after_help = "\
compact and expire can run at any time, beside collectors, and again; run them once a day.

Examples:
  tickwalk lake compact s3://profiles/tickwalk
  tickwalk lake expire s3://profiles/tickwalk --keep 90d
  tickwalk lake sql duckdb s3://profiles/tickwalk > lake.sql && duckdb -init lake.sql")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Replace the files of each hour that is over for two hours by one of each table
    Compact {
        /// s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH
        #[arg(value_name = "URL")]
        url: LakeUrl,
    },
    /// Remove the files of days that are too old
    Expire {
        /// s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH
        #[arg(value_name = "URL")]
        url: LakeUrl,
        /// Remove days that ended longer ago than this, in whole days, such as 90d
        #[arg(long, value_name = "TIME")]
        keep: Age,
    },
    /// Print the SQL that makes views of the lake: samples, stacks, accounts, hot methods, flame graphs, costs
    Sql {
        /// duckdb, clickhouse, spark or datafusion
        #[arg(value_name = "ENGINE")]
        engine: Engine,
        /// s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH
        #[arg(value_name = "URL")]
        url: LakeUrl,
    },
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let done = match &arguments.action {
        Action::Compact { url } => compact(&Lake::open(url)?, now_ns())?,
        Action::Expire { url, keep: Age(keep) } => {
            expire(&Lake::open(url)?, keep.as_secs().div_ceil(86_400), now_ns())?
        }
        Action::Sql { engine, url } => {
            write_answer(None, engine.views(url)?.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let Done { written, removed, written_bytes, removed_bytes } = done;
    tell!(
        "removed {} files with {} bytes, wrote {} with {}",
        count(removed),
        count(removed_bytes),
        count(written),
        count(written_bytes)
    );
    Ok(ExitCode::SUCCESS)
}
