//! A queue as text: `queue=fq-codel,limit=10240packets,target=5ms,…`.

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;

use super::direction::KeyValues;
use super::{TextError, value};
use crate::spec::{LimitSpec, QueueSpec};

const NAMES: &str = "drop-tail, red, codel, fq-codel, pie, drr or priority";
const LIMITS: &str = "64packets, 64KiB, or 1bdp (the product of this direction's rate and the link's delay there and back)";
/// Keys of parameters, and the queues that have them.
const PARAMETERS: [(&str, &[&str]); 9] = [
    ("min", &["red"]),
    ("max", &["red"]),
    ("p-max", &["red"]),
    ("ecn", &["red", "codel", "fq-codel", "pie"]),
    ("target", &["codel", "fq-codel", "pie"]),
    ("interval", &["codel", "fq-codel"]),
    ("update", &["pie"]),
    ("flows", &["fq-codel", "drr"]),
    ("quantum", &["fq-codel", "drr"]),
];

/// `old` with what is given.
pub fn apply(old: QueueSpec, given: &KeyValues<'_>) -> Result<QueueSpec, TextError> {
    let mut queue = match given.value_of("queue") {
        Some(kind) if kind == name(&old) => old,
        Some(kind) => {
            QueueSpec::named(kind).ok_or_else(|| value::invalid_value("queue", kind, NAMES))?
        }
        None => old,
    };
    for (key, queues) in PARAMETERS {
        if given.value_of(key).is_some() && !queues.contains(&name(&queue)) {
            let why = format!(
                "belongs to queue={}, and this queue is {}",
                queues.join(", "),
                name(&queue)
            );
            return Err(TextError::Conflict { key, why });
        }
    }
    let parameter = |slot: &mut Span, key| {
        given.parse_with(key, value::span).map(|given| *slot = given.unwrap_or(*slot))
    };
    let marks = |slot: &mut bool| {
        given.parse_with("ecn", value::yes_or_no).map(|given| *slot = given.unwrap_or(*slot))
    };
    let number = |slot: &mut u32, key| {
        given.parse_with(key, value::whole_number).map(|given| *slot = given.unwrap_or(*slot))
    };
    let limit = given.parse_with("limit", limit)?;
    match &mut queue {
        QueueSpec::DropTail { .. } | QueueSpec::Priority { .. } => {}
        QueueSpec::Red { min, max, p_max, ecn, .. } => {
            *min = given.parse_with("min", value::bytes)?.unwrap_or(*min);
            *max = given.parse_with("max", value::bytes)?.unwrap_or(*max);
            *p_max = given.parse_with("p-max", value::share)?.unwrap_or(*p_max);
            marks(ecn)?;
        }
        QueueSpec::CoDel { target, interval, ecn, .. } => {
            parameter(target, "target")?;
            parameter(interval, "interval")?;
            marks(ecn)?;
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, ecn, .. } => {
            number(flows, "flows")?;
            number(quantum, "quantum")?;
            parameter(target, "target")?;
            parameter(interval, "interval")?;
            marks(ecn)?;
        }
        QueueSpec::Pie { target, update, ecn, .. } => {
            parameter(target, "target")?;
            parameter(update, "update")?;
            marks(ecn)?;
        }
        QueueSpec::Drr { flows, quantum, .. } => {
            number(flows, "flows")?;
            number(quantum, "quantum")?;
        }
    }
    let slot = queue.limit_mut();
    *slot = limit.unwrap_or(*slot);
    Ok(queue)
}

impl QueueSpec {
    /// A queue of this name with the parameters that its source recommends.
    ///
    /// RED's thresholds are 20 and 60 full frames with a largest probability of a tenth (Floyd 1997);
    /// CoDel's 5 ms and 100 ms (RFC 8289 §4.4), FQ-CoDel's also 1,024 queues, 1,514 bytes and 10,240
    /// frames (RFC 8290 §5.2), PIE's 15 ms twice (RFC 8033 §5). What manages its length is limited at 10,240
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
            "priority" => Self::Priority { limit: tail },
            _ => return None,
        })
    }

    pub(crate) fn limit_mut(&mut self) -> &mut LimitSpec {
        match self {
            Self::DropTail { limit }
            | Self::Red { limit, .. }
            | Self::CoDel { limit, .. }
            | Self::FqCoDel { limit, .. }
            | Self::Pie { limit, .. }
            | Self::Drr { limit, .. }
            | Self::Priority { limit } => limit,
        }
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
    let mut span = |key: &str, span: &Span| parts.push(format!("{key}={}", format_span(*span)));
    match queue {
        QueueSpec::DropTail { .. } | QueueSpec::Priority { .. } => return,
        QueueSpec::Red { min, max, p_max, .. } => {
            parts.push(format!("min={}", value::format_bytes_value(*min)));
            parts.push(format!("max={}", value::format_bytes_value(*max)));
            parts.push(format!("p-max={p_max}"));
        }
        QueueSpec::CoDel { target, interval, .. } => {
            span("target", target);
            span("interval", interval);
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, .. } => {
            span("target", target);
            span("interval", interval);
            parts.push(format!("flows={flows}"));
            parts.push(format!("quantum={quantum}"));
        }
        QueueSpec::Pie { target, update, .. } => {
            span("target", target);
            span("update", update);
        }
        QueueSpec::Drr { flows, quantum, .. } => {
            parts.push(format!("flows={flows}"));
            parts.push(format!("quantum={quantum}"));
            return;
        }
    }
    let (QueueSpec::Red { ecn, .. }
    | QueueSpec::CoDel { ecn, .. }
    | QueueSpec::FqCoDel { ecn, .. }
    | QueueSpec::Pie { ecn, .. }) = queue
    else {
        return;
    };
    parts.push(format!("ecn={}", value::format_yes_or_no(*ecn)));
}
