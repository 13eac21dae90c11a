//! What things are called on a page: titles of experiments, labels of cells, families.
//!
//! A name that is not known here is printed as it is stored, so a new experiment needs no change.
//! Left out: any sentence about a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use plumb_analysis::document::CellResult;
use plumb_analysis::ladder::METROPOLITAN;
use plumb_base::units::{format_bytes, format_size, parse_bytes};
use serde_json::Value;

/// Words for the levels of a factor, or for the responses of an experiment.
pub type LevelWords = &'static [(&'static str, &'static str)];

/// Words of experiments, as the registry installs them.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) titles: Vec<(&'static str, &'static str)>,
    pub(crate) responses: Vec<(&'static str, LevelWords)>,
    pub(crate) levels: Vec<(&'static str, LevelWords)>,
}

static WORDS: OnceLock<Words> = OnceLock::new();

/// Makes the words of experiments known; only the first call has an effect.
pub(crate) fn install(words: impl FnOnce() -> Words) {
    WORDS.get_or_init(words);
}

/// The first word for `name` in the tables of `key`.
fn word(
    tables: fn(&Words) -> &[(&'static str, LevelWords)],
    key: &str,
    name: &str,
) -> Option<&'static str> {
    let tables = tables(WORDS.get()?).iter().filter(|(known, _)| *known == key);
    let mut words = tables.flat_map(|(_, words)| words.iter());
    words.find(|(known, _)| *known == name).map(|(_, word)| *word)
}

/// The heading of an experiment or study.
pub fn experiment(id: &str) -> &str {
    let mut titles = WORDS.get().into_iter().flat_map(|words| &words.titles);
    titles.find(|(known, _)| *known == id).map_or(id, |(_, title)| title)
}

/// What a response is, for axes and table heads.
pub fn response(name: &str) -> &str {
    match name {
        "latency" => "latency, half a round trip",
        "throughput" => "throughput, one acknowledgement at the end",
        "throughput.acked" => "throughput, every message acknowledged",
        "call" => "time a call",
        "resolution" => "smallest positive step",
        "read-cost" => "time a read",
        "offset" => "offset from the first CPU",
        "delivered" => "share delivered",
        "pieces" => "packets in which a datagram arrives",
        "connected" => "share of TCP connections that carry it",
        "urgent" => "round trip of a small packet behind others",
        "rtt" | "round_trip" => "round trip",
        "rtt-probed" => "round trip with the probes on",
        "stack" => "time in the stack, both ways",
        "receive" => "from the device to the socket",
        "send" => "from the socket to the device",
        "switch" => "waking and switching, apart",
        "packet" => "time a packet",
        "sender-cpu" => "bytes for each second of the sender's CPU",
        "receiver-cpu" => "bytes for each second of the receiver's CPU",
        "packets" => "packets a second",
        "packet-cpu" => "CPU time a packet, both hosts",
        "in-stack" => "the protocol stack's share of CPU time",
        "interrupt" => "time an interrupt",
        "time" => "time a buffer",
        "page" => "the whole page with its images",
        "page-ready" => "until its first connection can be used",
        "page-itself" => "the page without its images",
        "client-cpu" => "CPU time of a visit, client",
        other => other,
    }
}

/// What a response of an experiment is.
pub fn response_of<'a>(experiment: &str, name: &'a str) -> &'a str {
    word(|words| &words.responses, experiment, name).unwrap_or_else(|| response(name))
}

/// A part of a round trip in words: `send-path` is `send path`.
pub fn part(slug: &str) -> String {
    match slug {
        "wake-up" => slug.to_owned(),
        "wake-up-and-switch" => "wake-up and switch".to_owned(),
        "needless-wake-up" => "needless wake-up".to_owned(),
        "peer-other-calls" => "peer's other calls".to_owned(),
        other => other.replace('-', " "),
    }
}

/// The side whose CPU a response is about.
pub fn side(response: &str) -> &str {
    match response {
        "sender-cpu" => "sender",
        "receiver-cpu" => "receiver",
        other => other,
    }
}

/// What a response measures, in a word or two: for axes, which are short.
pub fn quantity(name: &str) -> &str {
    match name {
        "throughput.acked" => "throughput",
        "latency" | "throughput" => name,
        "sender-cpu" | "receiver-cpu" => "bytes for a second of CPU",
        "packet-cpu" => "CPU time a packet",
        "in-stack" => "stack's share",
        other => response(other),
    }
}

/// A placement in words.
pub fn placement(name: &str) -> &str {
    match name {
        "same-cpu" => "same CPU",
        "smt" => "SMT siblings",
        "same-cache" => "other CPU, same cache",
        "other-cpu" => "other CPU",
        "other-socket" => "other socket",
        "scheduler" => "left to the scheduler",
        "own-host" => "a CPU of each host",
        other => other,
    }
}

/// Nearest placement first: an order for pictures and sentences; cells without one come last.
pub fn placement_order(cell: &CellResult) -> usize {
    placement_rank(cell.factors.get("placement").and_then(Value::as_str).unwrap_or(""))
}

/// The place of a placement in that order.
pub fn placement_rank(placement: &str) -> usize {
    const ORDER: [&str; 5] = ["same-cpu", "smt", "same-cache", "other-socket", "scheduler"];
    ORDER.iter().position(|name| *name == placement).unwrap_or(ORDER.len())
}

/// A wake mode in words.
pub fn wake(name: &str) -> &str {
    match name {
        "block" => "blocking",
        "poll" => "poll",
        "epoll" => "epoll",
        "spin" => "spinning",
        other => other,
    }
}

/// The level of a factor as people write it: sizes with binary prefixes, words in full.
pub fn level(factor: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if matches!(factor, "size" | "buffer" | "frame" | "window") => {
                format_bytes(bytes)
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    };
    match factor {
        "placement" => placement(&text).to_owned(),
        "wake" => wake(&text).to_owned(),
        "loss" => format!("{text}% loss"),
        "cpu" => format!("CPU {text}"),
        // One that is no number names what it is the size of.
        "size" | "frame" | "packet" | "mtu" if text.starts_with(|c: char| c.is_ascii_digit()) => {
            parse_bytes(&text).map_or_else(|_| format!("{text} B"), format_size)
        }
        "link" => link(&text),
        "routers" | "streams" | "attackers" | "flows" | "connections" => match &*text {
            "1" => format!("1 {}", factor.trim_end_matches('s')),
            _ => format!("{text} {factor}"),
        },
        "ahead" => format!("{text} ahead"),
        "rtt" => format!("{text} there and back"),
        "window" => format!("{text} window"),
        "queue" => format!("{text} queue"),
        "cpu-share" => format!("{text}% of CPU"),
        "cpus" if text == "1" => "1 CPU".to_owned(),
        "cpus" => format!("{text} CPUs"),
        _ => word(|words| &words.levels, factor, &text)
            .or_else(|| other_level(factor, &text))
            .unwrap_or(&text)
            .to_owned(),
    }
}

/// A link for people: `rate=10mbit, delay=25ms`, which may be broken between lines; the metropolitan network of
/// the ladder by that name, and the link that a run was behind by its, since the page's beginning says which one
/// it was.
pub fn link(text: &str) -> String {
    if text.starts_with("outer:") {
        return "outer link".to_owned();
    }
    if let Some(name) = text.strip_prefix("host: ") {
        return format!("host {name}");
    }
    if text == METROPOLITAN {
        return "metropolitan".to_owned();
    }
    text.replace("queue=drop-tail,", "").replace(',', ", ").replace(';', "; ")
}

/// Levels that no experiment varies, of measurements between hosts.
fn other_level(factor: &str, level: &str) -> Option<&'static str> {
    Some(match (factor, level) {
        ("encryption", "tls") => "encrypted",
        ("encryption", "none") => "in the clear",
        _ => return None,
    })
}

/// The size that a cell is about: of its message, or of its frame.
pub fn bytes(cell: &CellResult) -> Option<u64> {
    let size = cell.factors.get("size").or_else(|| cell.factors.get("frame"));
    size.and_then(Value::as_u64).filter(|size| *size > 0)
}

/// Factors whose level differs between some of `cells`; the rest need not be printed on each row.
///
/// A factor that only some cells have (congestion control: TCP alone) varies only if its level
/// does: its absence says nothing that the mechanism does not.
pub fn varying<'a>(cells: impl IntoIterator<Item = &'a CellResult>) -> BTreeSet<String> {
    let mut seen: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut varying = BTreeSet::new();
    for cell in cells {
        for (name, value) in &cell.factors {
            if *seen.entry(name).or_insert(value) != value {
                varying.insert(name.clone());
            }
        }
    }
    varying
}

/// The label of a cell: its levels of `factors`, most telling first.
pub fn cell(factors: &BTreeMap<String, Value>, wanted: &BTreeSet<String>) -> String {
    let mut names: Vec<&String> =
        factors.keys().filter(|name| wanted.contains(name.as_str())).collect();
    names.sort_by_key(|name| (label_order(name), (*name).clone()));
    // A stack is nothing without what its frames come through: one phrase.
    let over = |name: &str| wanted.contains(name).then(|| factors.get(name)).flatten();
    let through = over("stack").and(over("device")).map(|device| level("device", device));
    if through.is_some() {
        names.retain(|name| *name != "device");
    }
    let words: Vec<String> = names
        .iter()
        .map(|name| match name.as_str() {
            "stack" => match &through {
                Some(device) => format!("{} over {device}", level("stack", &factors[*name])),
                None => level("stack", &factors[*name]),
            },
            "nodelay" | "quickack" | "buffer" | "receiver" => {
                format!("{name} {}", level(name, &factors[*name]))
            }
            _ => level(name, &factors[*name]),
        })
        .collect();
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

/// The label of a cell by these factors alone.
pub fn levels(factors: &BTreeMap<String, Value>, wanted: &[&str]) -> String {
    cell(factors, &wanted.iter().map(|name| (*name).to_owned()).collect())
}

/// A cell's levels of those of these factors that it has, in words; empty for none of them.
pub fn known_levels(of: &CellResult, wanted: &[&str]) -> String {
    let known = wanted.iter().filter(|factor| of.factors.contains_key(**factor));
    let known: BTreeSet<String> = known.map(|factor| (*factor).to_owned()).collect();
    if known.is_empty() { String::new() } else { cell(&of.factors, &known) }
}

/// `text` with its first letter capital.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Families that share a figure when one figure cannot hold every mechanism.
pub fn family(mechanism: &str) -> &'static str {
    match mechanism {
        "pipe" | "fifo" | "splice" | "vmsplice" | "sendfile" => "Pipes and splicing",
        "tcp4" | "tcp6" | "udp4" | "udp6" | "tcp-zerocopy" | "uring" => "TCP and UDP",
        m if m.starts_with("socketpair") || m.starts_with("unix") => "Unix sockets",
        m if m.starts_with("shm") || m == "vm-writev" => "Shared memory",
        _ => "Queues, events and signals",
    }
}

fn label_order(factor: &str) -> usize {
    const ORDER: [&str; 34] = [
        "mechanism",
        "link",
        "forwarder",
        "routers",
        "path",
        "fragments",
        "packet",
        "ahead",
        "rate",
        "rtt",
        "window",
        "cpus",
        "streams",
        "cpu-share",
        "mtu",
        "segmentation",
        "receive",
        "tweak",
        "call",
        "clock",
        "via",
        "stack",
        "device",
        "turn",
        "operation",
        "kernel",
        "size",
        "frame",
        "fragmentation",
        "placement",
        "wake",
        "family",
        "checksum",
        "cache",
    ];
    ORDER.iter().position(|name| *name == factor).unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_placements_are_written_for_people_and_unknown_names_as_they_are() {
        assert_eq!(level("size", &Value::from(4096)), "4 KiB");
        assert_eq!(level("placement", &Value::from("same-cpu")), "same CPU");
        assert_eq!(level("frame", &Value::from(1514)), "1514 B");
        assert_eq!(level("mtu", &Value::from("loopback")), "loopback");
        assert_eq!(level("colour", &Value::from("mauve")), "mauve");
        assert_eq!(experiment("latency.lunar"), "latency.lunar");
    }

    #[test]
    fn a_stack_and_its_device_are_one_phrase() {
        let factors = [("stack", "plumb"), ("device", "tap"), ("wake", "block")];
        let factors: BTreeMap<String, Value> =
            factors.map(|(name, level)| (name.to_owned(), Value::from(level))).into();
        let all = factors.keys().cloned().collect();
        assert_eq!(cell(&factors, &all), "plumb over tap, blocking");
        let stack = BTreeSet::from(["stack".to_owned()]);
        assert_eq!(cell(&factors, &stack), "plumb");
    }
}
