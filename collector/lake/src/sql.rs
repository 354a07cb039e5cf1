//! The SQL that ships with Tickwalk: the same views of a lake for several engines.

use std::ops::Range;
use std::str::FromStr;

use crate::layout::Table;
use crate::storage::LakeUrl;

/// An engine with views in `sql/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// DuckDB.
    DuckDb,
    /// ClickHouse and chDB.
    ClickHouse,
    /// Spark.
    Spark,
    /// DataFusion, whose parametrised views are prepared statements.
    DataFusion,
}

impl FromStr for Engine {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Engine, Self::Err> {
        match text {
            "duckdb" => Ok(Engine::DuckDb),
            "clickhouse" => Ok(Engine::ClickHouse),
            "spark" => Ok(Engine::Spark),
            "datafusion" => Ok(Engine::DataFusion),
            _ => Err("write duckdb, clickhouse, spark or datafusion"),
        }
    }
}

/// An engine does not read what a URL names.
#[derive(Debug, thiserror::Error)]
#[error("{name} reads no {scheme}:// lakes, only {}://; docs/collector.md lists the other engines", readable.join("://, "))]
pub struct Unreadable {
    name: &'static str,
    readable: &'static [&'static str],
    scheme: String,
}

impl Engine {
    /// Returns the engine's name, and the schemes of URLs that it reads, by itself or by a usual extension.
    fn reads(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Engine::DuckDb => ("DuckDB", &["s3", "s3a", "gs", "az", "abfss", "file"]),
            Engine::ClickHouse => ("ClickHouse", &["s3", "gs", "file"]),
            Engine::Spark => ("Spark", &["s3", "s3a", "gs", "abfs", "abfss", "file"]),
            Engine::DataFusion => ("DataFusion", &["s3", "gs", "file"]),
        }
    }

    /// Returns the statements that make the views of the lake at `url`.
    ///
    /// # Errors
    /// If the engine does not read URLs of this scheme.
    pub fn views(self, lake: &LakeUrl) -> Result<String, Unreadable> {
        let (name, readable) = self.reads();
        let scheme = lake.scheme();
        if !readable.contains(&scheme) {
            return Err(Unreadable { name, readable, scheme: scheme.to_owned() });
        }
        let directory = lake.directory().map(|path| path.display().to_string());
        let place = directory.clone().unwrap_or_else(|| lake.to_string());
        let place = place.trim_end_matches('/').replace('\'', "''");
        Ok(match (self, directory) {
            (Engine::DuckDb, _) => {
                format!("SET VARIABLE lake = '{place}';\n\n{}", include_str!("../sql/duckdb.sql"))
            }
            (Engine::ClickHouse, directory) => {
                let function = if directory.is_some() { "file" } else { "s3" };
                Table::ALL.iter().fold(include_str!("../sql/clickhouse.sql").to_owned(), |text, table| {
                    let table = table.name();
                    let files = format!("{function}('{place}/**/{table}-*.parquet')");
                    text.replace(&format!("LAKE({table})"), &files)
                })
            }
            (Engine::Spark, Some(_)) => {
                include_str!("../sql/spark.sql").replace("LAKE", &format!("file://{place}"))
            }
            // Spark's name for S3.
            (Engine::Spark, None) => {
                include_str!("../sql/spark.sql").replace("LAKE", &place.replacen("s3://", "s3a://", 1))
            }
            (Engine::DataFusion, _) => include_str!("../sql/datafusion.sql").replace("LAKE", &place),
        })
    }
}

/// Returns a command for a shell that lets DuckDB answer what is too much for one machine's memory: the hot methods of
/// a service in these microseconds since the epoch.
pub fn command(url: &str, service: Option<&str>, span_us: Range<i64>) -> String {
    let service = service.unwrap_or("SERVICE").replace('\'', "''");
    // An open end is written as a time that engines can represent.
    let moment = |us: i64| match us.div_euclid(1_000_000) {
        seconds @ 0..4_000_000_000 => format!("to_timestamp({seconds})"),
        _ => "now()".to_owned(),
    };
    let (from, to) = (moment(span_us.start), moment(span_us.end));
    let query = format!("FROM hot_methods('{service}', {from}, {to}) ORDER BY self_ns DESC LIMIT 20");
    format!(
        "tickwalk lake sql duckdb {} > lake.sql && duckdb -init lake.sql -c {}",
        quoted(url),
        quoted(&query)
    )
}

/// Returns a word as a shell reads it within quotation marks.
fn quoted(word: &str) -> String {
    let escaped = word.chars().flat_map(|letter| {
        let is_special = matches!(letter, '"' | '\\' | '$' | '`');
        is_special.then_some('\\').into_iter().chain([letter])
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_name_the_lake() {
        let views = |engine: &str, url: &str| {
            let url: LakeUrl = url.parse().expect("a URL");
            engine.parse::<Engine>().expect("an engine").views(&url).expect("an engine that reads it")
        };
        assert!(views("duckdb", "file:///a/b c/").starts_with("SET VARIABLE lake = '/a/b c';\n"));
        assert!(views("duckdb", "s3://a/it's").starts_with("SET VARIABLE lake = 's3://a/it''s';\n"));
        assert!(views("clickhouse", "s3://a/b").contains("FROM s3('s3://a/b/**/samples-*.parquet')\n"));
        assert!(views("clickhouse", "file:///a").contains("FROM file('/a/**/stacks-*.parquet')\n"));
        assert!(views("spark", "s3://a/b").contains("path 's3a://a/b'"));
        assert!(views("spark", "file:///a").contains("path 'file:///a'"));
        for engine in ["clickhouse", "spark", "datafusion"] {
            let left: Vec<String> = views(engine, "s3://a/b")
                .lines()
                .filter(|line| line.contains("LAKE") && !line.starts_with("--"))
                .map(str::to_owned)
                .collect();
            assert!(left.is_empty(), "{engine}: {left:?}");
        }
        assert!("oracle".parse::<Engine>().is_err());
    }

    #[test]
    fn an_engine_that_does_not_read_the_url_is_refused() {
        let refusal = |engine: Engine, url: &str| {
            let url: LakeUrl = url.parse().expect("a URL");
            engine.views(&url).err().map(|error| error.to_string())
        };
        let readable = "DataFusion reads no az:// lakes, only s3://, gs://, file://; docs/collector.md lists the other engines";
        assert_eq!(refusal(Engine::DataFusion, "az://container/a").as_deref(), Some(readable));
        assert!(refusal(Engine::ClickHouse, "az://container/a").is_some());
        assert!(refusal(Engine::Spark, "az://container/a").is_some());
        assert_eq!(refusal(Engine::DuckDb, "az://container/a"), None);
        assert_eq!(refusal(Engine::ClickHouse, "gs://bucket/a"), None);
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(
            command("s3://a/b", Some("it's $HOME"), 5_000_000..i64::MAX),
            "tickwalk lake sql duckdb \"s3://a/b\" > lake.sql && duckdb -init lake.sql \
             -c \"FROM hot_methods('it''s \\$HOME', to_timestamp(5), now()) ORDER BY self_ns DESC LIMIT 20\""
        );
    }
}
