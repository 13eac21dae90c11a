//! Archives of other people's lmbench results as a table of comma-separated values, a machine a row.
//!
//! A column is named by what it holds and its unit, as in `pipe_lat_us`; one in another unit of the same kind is
//! converted. Round trips are halved, as everywhere here.

use std::collections::BTreeMap;

use super::{KnownMachine, MachineSet, MachineValue, SpeedKind};

/// Why an archive was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The head is missing a column without which nothing is known about a row.
    #[error(
        "the first line names no column '{0}': an archive has host, mhz and columns such as null_call_us"
    )]
    NoColumn(&'static str),
    /// A column's unit is not one of its kind.
    #[error("column '{column}' is in '{unit}', which is not a {kind}; name it {example}")]
    Unit {
        /// The column.
        column: String,
        /// What it ends in.
        unit: String,
        /// `time` or `rate`.
        kind: &'static str,
        /// A right name.
        example: String,
    },
    /// A value is no positive number.
    #[error("line {line}, column '{column}': '{text}' is not a number above zero")]
    Value {
        /// Counted from 1.
        line: usize,
        /// The column.
        column: String,
        /// What is there.
        text: String,
    },
    /// No row has a value.
    #[error("the archive has no row with a value")]
    Empty,
}

/// Columns of quantities: their stems, the metric, what a value is multiplied by, and whether they are times.
const COLUMNS: [(&str, &str, f64, bool); 13] = [
    ("null_call", "entry", 1.0, true),
    ("null_io", "entry-io", 1.0, true),
    ("ctx_2p_0k", "switch", 1.0, true),
    ("pipe_lat", "pipe", 0.5, true),
    ("unix_lat", "unix", 0.5, true),
    ("udp_lat", "udp", 0.5, true),
    ("tcp_lat", "tcp", 0.5, true),
    ("tcp_conn", "connect", 1.0, true),
    ("bw_pipe", "pipe-bandwidth", 1.0, false),
    ("bw_unix", "unix-bandwidth", 1.0, false),
    ("bw_tcp", "tcp-bandwidth", 1.0, false),
    ("bw_bcopy_libc", "memory-copy", 1.0, false),
    ("lat_mem", "memory-load", 1.0, true),
];

const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATES: [(&str, f64); 4] = [("Bs", 1.0), ("kBs", 1e3), ("MBs", 1e6), ("GBs", 1e9)];

/// Whether a text is such an archive.
pub fn is_archive(text: &str) -> bool {
    let head = text.lines().next().unwrap_or("");
    head.contains(',') && COLUMNS.iter().any(|(stem, ..)| head.contains(stem))
}

/// The machines of an archive.
///
/// # Errors
/// [`ArchiveError`], with line and column.
pub fn read(text: &str, name: &str) -> Result<MachineSet, ArchiveError> {
    let mut rows = records(text).into_iter();
    let heads = rows.next().map(|(_, heads)| heads).unwrap_or_default();
    for needed in ["host", "mhz"] {
        if !heads.iter().any(|head| head == needed) {
            return Err(ArchiveError::NoColumn(needed));
        }
    }
    let columns: Vec<Option<QuantityColumn>> =
        heads.iter().map(|head| QuantityColumn::of(head)).collect::<Result<_, _>>()?;
    let mut set = MachineSet::default();
    for (line, row) in rows {
        let cells: BTreeMap<&str, &str> =
            heads.iter().map(String::as_str).zip(row.iter().map(|cell| cell.trim())).collect();
        let mut machine = described(&cells, line, name)?;
        for (column, (head, text)) in columns.iter().zip(heads.iter().zip(&row)) {
            let (Some(column), false) = (column, text.trim().is_empty()) else { continue };
            let value = positive(text, line, head)?;
            let (metric, factor) = column.meaning(&cells);
            machine.values.insert(metric, MachineValue::exact(value * factor));
        }
        if !machine.values.is_empty() {
            set.extend([machine]);
        }
    }
    if set.machines.is_empty() { Err(ArchiveError::Empty) } else { Ok(set) }
}

/// A column that holds a quantity.
struct QuantityColumn {
    metric: &'static str,
    factor: f64,
    is_rate: bool,
}

impl QuantityColumn {
    /// The quantity of a head, none where it is of another kind.
    fn of(head: &str) -> Result<Option<Self>, ArchiveError> {
        let Some((stem, unit)) = head.rsplit_once('_') else { return Ok(None) };
        let Some((_, metric, share, is_time)) = COLUMNS.iter().find(|(known, ..)| *known == stem)
        else {
            return Ok(None);
        };
        let units = if *is_time { TIMES } else { RATES };
        let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
            let (kind, right) = if *is_time { ("time", "us") } else { ("rate", "MBs") };
            return Err(ArchiveError::Unit {
                column: head.to_owned(),
                unit: unit.to_owned(),
                kind,
                example: format!("{stem}_{right}"),
            });
        };
        Ok(Some(Self { metric, factor: factor * share, is_rate: !is_time }))
    }

    /// The metric and the factor in one row: lmbench 1.x timed a write as its null call, and its megabytes were of 2²⁰
    /// bytes.
    fn meaning(&self, cells: &BTreeMap<&str, &str>) -> (&'static str, f64) {
        let version = cells.get("lmbench_version").copied().unwrap_or("");
        let year = cells.get("date").and_then(|date| date.get(..4)).unwrap_or("");
        let is_first = version.starts_with("1.") && year < "1998" && !year.is_empty();
        match (self.metric, is_first) {
            ("entry", true) => ("entry-io", self.factor),
            (metric, true) if self.is_rate => (metric, self.factor * 1.048_576),
            (metric, _) => (metric, self.factor),
        }
    }
}

/// Name, class, date and speed of a row.
fn described(
    cells: &BTreeMap<&str, &str>,
    line: usize,
    archive: &str,
) -> Result<KnownMachine, ArchiveError> {
    let cell = |name: &str| cells.get(name).copied().unwrap_or("");
    let mut speed = BTreeMap::new();
    if !cell("mhz").is_empty() {
        speed.insert(SpeedKind::Clock, positive(cell("mhz"), line, "mhz")? * 1e6);
    }
    // Division is the integer operation that no compiler leaves out.
    if !cell("int_div_ns").is_empty() {
        speed.insert(SpeedKind::Integer, 1e9 / positive(cell("int_div_ns"), line, "int_div_ns")?);
    }
    if let Some(spec) = noted_spec(cell("notes")) {
        speed.insert(SpeedKind::Spec, spec);
    }
    let host = [cell("host"), cell("cpu_model"), "unnamed"].into_iter().find(|it| !it.is_empty());
    let kernel = [cell("os"), cell("kernel")].join(" ");
    Ok(KnownMachine {
        name: format!("{}, {}", host.unwrap_or_default(), kernel.trim())
            .trim_end_matches(", ")
            .to_owned(),
        class: super::architecture_class(cell("arch")).to_owned(),
        basis: archive.to_owned(),
        year: year(cell("date")),
        speed,
        values: BTreeMap::new(),
    })
}

/// The figure behind `SPECint92` in the notes of a row.
fn noted_spec(notes: &str) -> Option<f64> {
    notes.split_once("SPECint92 ")?.1.split([' ', ';', ',', '(']).next()?.parse().ok()
}

/// `1996-03-18` as a year with its fraction.
fn year(date: &str) -> Option<f64> {
    let mut parts = date.split('-');
    let year: f64 = parts.next()?.parse().ok()?;
    let month: f64 = parts.next().and_then(|month| month.parse().ok()).unwrap_or(7.0);
    Some(year + (month - 0.5) / 12.0)
}

fn positive(text: &str, line: usize, column: &str) -> Result<f64, ArchiveError> {
    let number = text.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    number.ok_or_else(|| ArchiveError::Value {
        line,
        column: column.to_owned(),
        text: text.trim().chars().take(40).collect(),
    })
}

/// The rows of a table (RFC 4180), each with the line on which it begins; empty rows are left out.
fn records(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut rows = Vec::new();
    let (mut row, mut cell) = (Vec::new(), String::new());
    let (mut is_quoted, mut line, mut began) = (false, 1, 1);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                cell.push('"');
                chars.next();
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !is_quoted => {}
            '\n' => {
                line += 1;
                if is_quoted {
                    cell.push(c);
                    continue;
                }
                row.push(std::mem::take(&mut cell));
                rows.push((began, std::mem::take(&mut row)));
                began = line;
            }
            c => cell.push(c),
        }
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push((began, row));
    }
    rows.retain(|(_, row)| row.iter().any(|cell| !cell.trim().is_empty()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "host,arch,date,lmbench_version,mhz,null_call_us,pipe_lat_us,bw_tcp_MBs,notes\n";

    fn machines(rows: &str) -> Result<Vec<KnownMachine>, ArchiveError> {
        read(&format!("{HEAD}{rows}"), "test").map(|set| set.machines)
    }

    #[test]
    fn quantities_come_in_one_unit_and_by_what_they_were() {
        let rows = "old,sparc64,1996-01,1.1,167,5,62,10,\"SPECint92 84, and more\"\n\
                    new,x86_64,2003-02-25,2.0,1000,0.4,8,100,\n";
        let found = machines(rows).unwrap();
        assert_eq!(found[0].values["entry-io"], MachineValue::exact(5e3));
        assert!(!found[0].values.contains_key("entry"));
        assert!((found[0].values["tcp-bandwidth"].value - 10.0 * 1_048_576.0).abs() < 1e-6);
        assert_eq!((found[0].speed[&SpeedKind::Spec], found[0].class.as_str()), (84.0, "sparc"));
        assert_eq!(found[1].values["entry"], MachineValue::exact(400.0));
        assert_eq!(
            (found[1].values["pipe"].value, found[1].values["tcp-bandwidth"].value),
            (4e3, 1e8)
        );
        assert!((found[1].year.unwrap() - 2003.125).abs() < 1e-9);
    }

    #[test]
    fn incomplete_rows_keep_what_they_have() {
        let found =
            machines("a,x86,2001-01-19,2.0,,,8,,\n,,,,,,,,\nb,x86,2002,2.0,500,,,,\n").unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].speed.is_empty() && found[0].values.len() == 1);
        assert_eq!(machines("b,x86,2002,2.0,500,,,,\n"), Err(ArchiveError::Empty));
    }

    #[test]
    fn another_unit_of_the_same_kind_is_converted_and_a_wrong_one_refused() {
        let other = "host,mhz,null_call_ns,bw_tcp_GBs\na,1000,400,1.5\n";
        let found = read(other, "test").unwrap().machines.remove(0);
        assert_eq!(
            (found.values["entry"].value, found.values["tcp-bandwidth"].value),
            (400.0, 1.5e9)
        );
        let error = read("host,mhz,null_call_MBs\na,1,2\n", "test").unwrap_err().to_string();
        assert!(
            error.contains("null_call_MBs") && error.ends_with("name it null_call_us"),
            "{error}"
        );
    }

    #[test]
    fn a_bad_value_is_named_by_line_and_column() {
        let error =
            machines("a,x86,2001,2.0,500,0.4,8,1,\nb,x86,2001,2.0,500,-3,8,1,\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 3, column 'null_call_us': '-3' is not a number above zero"
        );
        assert_eq!(read("a,b\n1,2\n", "test"), Err(ArchiveError::NoColumn("host")));
    }
}
