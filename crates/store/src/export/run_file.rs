//! A run as a file that travels: everything that is stored of it, as JSON, with or without what names its host.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::record::{FactorLevel, RunData, RunRecord};

/// The name of the shape of such a file.
pub const SCHEMA: &str = "plumb.record/1";

/// What a file says first.
#[derive(Debug, Serialize, Deserialize)]
struct RunFile<T> {
    schema: String,
    record: T,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum RunFileError {
    /// It is of another shape or version.
    #[error("it is '{0}', and this plumb reads {SCHEMA}: read it with the plumb that wrote it")]
    Version(String),
    /// It is cut short or changed.
    #[error("it is damaged: {0}")]
    Damaged(serde_json::Error),
}

/// Names of facts that name a host or how it was reached.
const NAMING: [&str; 6] = [
    "host.name",
    "host.address",
    "host.options",
    "net.command",
    RunRecord::IMPORT_FILE,
    "kernel.command_line",
];

/// The text of the file.
///
/// # Errors
/// A number that JSON cannot hold.
pub fn write(data: &RunData, is_anonymous: bool) -> Result<String, serde_json::Error> {
    let record = if is_anonymous { anonymous(data.clone()) } else { data.clone() };
    let file = RunFile { schema: SCHEMA.to_owned(), record };
    Ok(serde_json::to_string(&file)? + "\n")
}

/// Whether a text is such a file, of whatever version.
pub fn is_run_file(text: &str) -> bool {
    text.trim_start().starts_with("{\"schema\":\"plumb.record/")
}

/// The run in a file.
///
/// # Errors
/// [`RunFileError`].
pub fn read(text: &str) -> Result<RunData, RunFileError> {
    #[derive(Deserialize)]
    struct FileHead {
        schema: String,
    }
    let head: FileHead = serde_json::from_str(text).map_err(RunFileError::Damaged)?;
    if head.schema != SCHEMA {
        return Err(RunFileError::Version(head.schema));
    }
    let file: RunFile<RunData> = serde_json::from_str(text).map_err(RunFileError::Damaged)?;
    Ok(file.record)
}

/// The run without what names its host, the other host or their addresses.
fn anonymous(mut data: RunData) -> RunData {
    let run = &mut data.run;
    let named = [run.notes.remove("host.name"), run.provenance.get("host.name").cloned()];
    let names: Vec<String> = named.into_iter().flatten().filter(|name| name.len() > 1).collect();
    for facts in [&mut run.notes, &mut run.provenance] {
        facts.retain(|name, _| !NAMING.contains(&name.as_str()));
        for fact in facts.values_mut() {
            *fact = scrubbed(fact, &names);
        }
    }
    run.plan_toml = scrubbed(&run.plan_toml, &names);
    for cell in &mut data.cells {
        for level in cell.factors.0.values_mut() {
            if let FactorLevel::Text(text) = level {
                *text = scrubbed(text, &names);
            }
        }
    }
    for launch in &mut data.launches {
        launch.group = scrubbed(&launch.group, &names);
    }
    data
}

/// A text with the names of hosts and every address but those of loopback taken out.
fn scrubbed(text: &str, names: &[String]) -> String {
    let mut text = text.to_owned();
    for name in names {
        text = text.replace(name.as_str(), "HOST");
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '%');
    let mut scrubbed = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        scrubbed += if is_address(word) { "ADDRESS" } else { word };
        let gap = behind.find(is_part).unwrap_or(behind.len());
        scrubbed += &behind[..gap];
        rest = &behind[gap..];
    }
    scrubbed
}

fn is_address(word: &str) -> bool {
    let address = word.split('%').next().unwrap_or(word);
    let ip = address.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| Some(address.parse::<SocketAddr>().ok()?.ip()));
    let is_mac = || {
        let parts: Vec<&str> = word.split(':').collect();
        parts.len() == 6
            && parts.iter().all(|it| it.len() == 2 && u8::from_str_radix(it, 16).is_ok())
    };
    // `::` is also written between words.
    ip.is_some_and(|ip| !ip.is_loopback() && !ip.is_unspecified()) || is_mac()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::fixture;

    #[test]
    fn what_is_written_is_read_again() {
        let data = fixture::bare("ladder-20261121-aaaa", 5);
        let text = write(&data, false).unwrap();
        assert!(is_run_file(&text));
        assert_eq!(read(&text).unwrap(), data);
    }

    #[test]
    fn an_anonymous_file_names_no_host_and_no_address() {
        let mut data = fixture::bare("ladder-20261121-aaaa", 5);
        for (name, fact) in [
            ("host.name", "zeus"),
            ("host.kernel", "6.1 on zeus"),
            ("path", "from 192.0.2.7 to [2001:db8::1]:5201 by 02:00:5e:10:00:01, then 127.0.0.1"),
        ] {
            data.run.notes.insert(name.to_owned(), fact.to_owned());
        }
        data.run.plan_toml = "link = [\"host:zeus\"]\nbudget = \"12:30\"".to_owned();
        let text = write(&data, true).unwrap();
        for secret in ["zeus", "192.0.2.7", "2001:db8", "02:00:5e"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("127.0.0.1") && text.contains("12:30") && text.contains("host:HOST"));
    }

    #[test]
    fn another_version_and_a_cut_file_are_told_apart() {
        let text = write(&fixture::bare("a", 5), false).unwrap();
        let newer = text.replacen("plumb.record/1", "plumb.record/2", 1);
        assert!(is_run_file(&newer));
        assert!(
            matches!(read(&newer), Err(RunFileError::Version(name)) if name == "plumb.record/2")
        );
        assert!(matches!(read(&text[..text.len() / 2]), Err(RunFileError::Damaged(_))));
    }
}
