//! A queue as text: `queue=fq-codel,limit=10240packets,target=5ms,…`.

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;

use super::direction::KeyValues;
use super::{TextError, value};
use crate::spec::{LimitSpec, QueueSpec};

const KINDS: [&str; 9] =
    ["drop-tail", "red", "codel", "fq-codel", "pie", "drr", "csfq", "red-pd", "priority"];
const NAMES: &str = "drop-tail, red, codel, fq-codel, pie, drr, csfq, red-pd or priority";
const LIMITS: &str = "64packets, 64KiB, or 1bdp (the product of this direction's rate and the link's delay there and back)";

/// A parameter of a queue.
enum QueueParameter<'a> {
    Bytes(&'a mut u64),
    Share(&'a mut f64),
    Number(&'a mut u32),
    Flag(&'a mut bool),
    Time(&'a mut Span),
}

/// The parameters of a queue by their keys, in the order in which they are written.
fn parameters(queue: &mut QueueSpec) -> Vec<(&'static str, QueueParameter<'_>)> {
    use QueueParameter::{Bytes, Flag, Number, Share, Time};
    match queue {
        QueueSpec::DropTail { .. } | QueueSpec::Priority { .. } => Vec::new(),
        QueueSpec::Red { min, max, p_max, ecn, .. } => {
            vec![
                ("min", Bytes(min)),
                ("max", Bytes(max)),
                ("p-max", Share(p_max)),
                ("ecn", Flag(ecn)),
            ]
        }
        QueueSpec::CoDel { target, interval, ecn, .. } => {
            vec![("target", Time(target)), ("interval", Time(interval)), ("ecn", Flag(ecn))]
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, ecn, .. } => vec![
            ("target", Time(target)),
            ("interval", Time(interval)),
            ("flows", Number(flows)),
            ("quantum", Number(quantum)),
            ("ecn", Flag(ecn)),
        ],
        QueueSpec::Pie { target, update, ecn, .. } => {
            vec![("target", Time(target)), ("update", Time(update)), ("ecn", Flag(ecn))]
        }
        QueueSpec::Drr { flows, quantum, .. } => {
            vec![("flows", Number(flows)), ("quantum", Number(quantum))]
        }
        QueueSpec::Csfq { flows, average, .. } => {
            vec![("flows", Number(flows)), ("average", Time(average))]
        }
        QueueSpec::RedPd { min, max, p_max, ecn, rtt, .. } => vec![
            ("min", Bytes(min)),
            ("max", Bytes(max)),
            ("p-max", Share(p_max)),
            ("ecn", Flag(ecn)),
            ("rtt", Time(rtt)),
        ],
    }
}

/// The queues that have a parameter.
fn owners(key: &str) -> Vec<&'static str> {
    let has = |name: &&str| {
        QueueSpec::named(name)
            .is_some_and(|mut queue| parameters(&mut queue).iter().any(|(own, _)| *own == key))
    };
    KINDS.into_iter().filter(has).collect()
}

/// `old` with what is given.
pub fn apply(old: QueueSpec, given: &KeyValues<'_>) -> Result<QueueSpec, TextError> {
    let mut queue = match given.value_of("queue") {
        Some(kind) if kind != name(&old) => {
            QueueSpec::named(kind).ok_or_else(|| value::invalid_value("queue", kind, NAMES))?
        }
        _ => old,
    };
    let own = name(&queue);
    for (key, _) in given.iter() {
        let owners = owners(key);
        if !owners.is_empty() && !owners.contains(&own) {
            let why = format!("belongs to queue={}, and this queue is {own}", owners.join(", "));
            return Err(TextError::conflict(key, &why));
        }
    }
    for (key, parameter) in parameters(&mut queue) {
        let Some(text) = given.value_of(key) else { continue };
        match parameter {
            QueueParameter::Bytes(slot) => *slot = value::bytes(key, text)?,
            QueueParameter::Share(slot) => *slot = value::share(key, text)?,
            QueueParameter::Number(slot) => *slot = value::whole_number(key, text)?,
            QueueParameter::Flag(slot) => *slot = value::yes_or_no(key, text)?,
            QueueParameter::Time(slot) => *slot = value::span(key, text)?,
        }
    }
    if let Some(limit) = given.parse_with("limit", limit)? {
        *queue.limit_mut() = limit;
    }
    Ok(queue)
}

impl QueueSpec {
    /// A queue of this name with the parameters that its source recommends.
    ///
    /// RED's thresholds are 20 and 60 full frames with a largest probability of a tenth (Floyd 1997);
    /// CoDel's 5 ms and 100 ms (RFC 8289 §4.4), FQ-CoDel's also 1,024 queues, 1,514 bytes and 10,240
    /// frames (RFC 8290 §5.2), PIE's 15 ms twice (RFC 8033 §5), CSFQ's averages of 100 and
    /// 200 ms (§3 of the paper), RED-PD's round trip of 40 ms. What manages its length is limited at 10,240
    /// frames, the others at one product of rate and delay.
    pub fn named(name: &str) -> Option<Self> {
        let (tail, managed) = (LimitSpec::Bdp(1_000), LimitSpec::Frames(10_240));
        let (target, interval) = (Span::from_ms(5), Span::from_ms(100));
        Some(match name {
            "drop-tail" => Self::DropTail { limit: tail },
            "red" => Self::Red { min: 30_000, max: 90_000, p_max: 0.1, ecn: false, limit: managed },
            "codel" => Self::CoDel { target, interval, ecn: false, limit: managed },
            "fq-codel" => Self::FqCoDel {
                flows: 1_024,
                quantum: 1_514,
                target,
                interval,
                ecn: true,
                limit: managed,
            },
            "pie" => {
                let target = Span::from_ms(15);
                Self::Pie { target, update: target, ecn: false, limit: managed }
            }
            "drr" => Self::Drr { flows: 1_024, quantum: 1_514, limit: tail },
            "csfq" => Self::Csfq { flows: 1_024, average: Span::from_ms(100), limit: tail },
            "red-pd" => Self::RedPd {
                min: 30_000,
                max: 90_000,
                p_max: 0.1,
                ecn: false,
                rtt: Span::from_ms(40),
                limit: managed,
            },
            "priority" => Self::Priority { limit: tail },
            _ => return None,
        })
    }
}

fn name(queue: &QueueSpec) -> &'static str {
    match queue {
        QueueSpec::DropTail { .. } => "drop-tail",
        QueueSpec::Red { .. } => "red",
        QueueSpec::CoDel { .. } => "codel",
        QueueSpec::FqCoDel { .. } => "fq-codel",
        QueueSpec::Pie { .. } => "pie",
        QueueSpec::Drr { .. } => "drr",
        QueueSpec::Csfq { .. } => "csfq",
        QueueSpec::RedPd { .. } => "red-pd",
        QueueSpec::Priority { .. } => "priority",
    }
}

fn limit(key: &'static str, text: &str) -> Result<LimitSpec, TextError> {
    let fail = || value::invalid_value(key, text, LIMITS);
    if let Some(number) = text.strip_suffix("bdp") {
        return value::thousandths(key, number.trim(), LIMITS).map(LimitSpec::Bdp);
    }
    for unit in ["packets", "packet", "frames", "frame", "p"] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.trim().parse().map(LimitSpec::Frames).map_err(|_| fail());
        }
    }
    // A bare number could be either.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(fail());
    }
    value::bytes(key, text).map(LimitSpec::Bytes).map_err(|_| fail())
}

/// Appends what [`apply`] makes the same queue of.
pub fn write(queue: &QueueSpec, parts: &mut Vec<String>) {
    parts.push(format!("queue={}", name(queue)));
    parts.push(match queue.limit() {
        LimitSpec::Frames(frames) => format!("limit={frames}packets"),
        LimitSpec::Bytes(bytes) => format!("limit={}", value::format_bytes_value(bytes)),
        LimitSpec::Bdp(thousandths) => {
            format!("limit={}bdp", value::format_thousandths(thousandths))
        }
    });
    for (key, parameter) in parameters(&mut queue.clone()) {
        let value = match parameter {
            QueueParameter::Bytes(bytes) => value::format_bytes_value(*bytes),
            QueueParameter::Share(share) => share.to_string(),
            QueueParameter::Number(number) => number.to_string(),
            QueueParameter::Flag(flag) => value::format_yes_or_no(*flag).to_owned(),
            QueueParameter::Time(span) => format_span(*span),
        };
        parts.push(format!("{key}={value}"));
    }
}
