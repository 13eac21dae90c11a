//! Arguments of calls: numbers, flags, lengths, and what a call gives beside its return value.

use super::CallFault;
use crate::script::{CallValue, SystemCall};

/// A number, or why it is none.
pub fn number(call: &SystemCall, place: usize) -> Result<i64, CallFault> {
    match call.arguments.get(place) {
        Some(CallValue::Integer(value)) => Ok(*value),
        Some(CallValue::List(values)) => match values[..] {
            [CallValue::Integer(value)] => Ok(value),
            [CallValue::Word(ref word)] => class_selector(word)
                .ok_or_else(|| CallFault::Unsupported(format!("the constant {word}"))),
            _ => {
                Err(CallFault::Unsupported(format!("the argument {} of {}", place + 1, call.name)))
            }
        },
        _ => Err(CallFault::Unsupported(format!("the argument {} of {}", place + 1, call.name))),
    }
}

/// The octet of a class selector, `IPTOS_DSCP_CS0` to `IPTOS_DSCP_CS7` (RFC 2474 §4.2.2).
fn class_selector(word: &str) -> Option<i64> {
    let class: i64 = word.strip_prefix("IPTOS_DSCP_CS")?.parse().ok()?;
    (0..8).contains(&class).then_some(class << 5)
}

/// The names joined by `|`; of a number, "0" if it is that.
pub fn flags_of(value: &CallValue) -> Vec<&str> {
    match value {
        CallValue::Word(word) => vec![word],
        CallValue::Or(values) => values.iter().flat_map(flags_of).collect(),
        CallValue::Integer(0) => vec!["0"],
        CallValue::Integer(_) => vec!["a number"],
        _ => Vec::new(),
    }
}

/// Whether the buffer of a call is a null pointer.
pub fn is_null(call: &SystemCall) -> bool {
    matches!(call.arguments.get(1), Some(CallValue::Word(word)) if word == "NULL")
}

/// Bytes to be moved, and the flags.
pub fn length(call: &SystemCall) -> Result<(usize, Vec<&str>), CallFault> {
    let flags = |place: usize| call.arguments.get(place).map(flags_of).unwrap_or_default();
    let bytes = |value: i64| usize::try_from(value).unwrap_or(0);
    match call.name.as_str() {
        "write" | "read" => Ok((bytes(number(call, 2)?), Vec::new())),
        "writev" | "readv" => Ok((call.arguments.get(1).map_or(0, vectors), Vec::new())),
        "sendmsg" | "recvmsg" => {
            let message = field(call.arguments.get(1), "msg_iov");
            Ok((message.map_or(0, vectors), flags(2)))
        }
        _ => Ok((bytes(number(call, 2)?), flags(3))),
    }
}

/// Bytes of `[{..., 10}, {..., 20}]`.
fn vectors(value: &CallValue) -> usize {
    let CallValue::List(vectors) = value else { return 0 };
    let len = |vector: &CallValue| match vector {
        CallValue::Fields(fields) => match fields.get(1) {
            Some(CallValue::Integer(len)) => usize::try_from(*len).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    };
    vectors.iter().map(len).sum()
}

/// The value of a field of a structure.
pub fn field<'a>(value: Option<&'a CallValue>, name: &str) -> Option<&'a CallValue> {
    let Some(CallValue::Fields(fields)) = value else { return None };
    fields.iter().find_map(|field| match field {
        CallValue::Named(found, value) if found == name => Some(&**value),
        _ => None,
    })
}

/// Compares what a call wrote to `[n]` in an argument.
pub fn compare_output(call: &SystemCall, place: usize, found: i64) -> Result<(), CallFault> {
    if matches!(call.arguments.get(place), Some(CallValue::Any) | None) {
        return Ok(());
    }
    let expected = number(call, place)?;
    if expected == found {
        return Ok(());
    }
    Err(CallFault::Differs(format!("{} gave {found} instead of {expected}", call.name)))
}

/// Compares the queue that TCP_INQ reports in a control message.
pub fn compare_control(call: &SystemCall, found: Option<i64>) -> Result<(), CallFault> {
    let expected = match field(call.arguments.get(1), "msg_control") {
        Some(CallValue::List(messages)) => match field(messages.first(), "cmsg_data") {
            Some(CallValue::Integer(value)) => Some(*value),
            _ => None,
        },
        _ => return Ok(()),
    };
    if expected == found {
        return Ok(());
    }
    Err(CallFault::Differs(format!("recvmsg reports {found:?} queued instead of {expected:?}")))
}
