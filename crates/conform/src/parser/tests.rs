use plumb_base::time::Span;
use plumb_wire::tcp::TcpFlags;
use proptest::prelude::*;

use super::parse;
use crate::code::{CodeNames, CodeStatement};
use crate::outcome::{ScriptError, ScriptPosition};
use crate::script::{
    CallValue, ClassSpec, EventTime, OptionSpec, PacketBody, ScriptAction, ScriptEvent, TcpSpec,
};

fn events(text: &str) -> Vec<ScriptEvent> {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).events
}

fn segment(text: &str) -> TcpSpec {
    match events(text).remove(0).action {
        ScriptAction::Inbound(packet) | ScriptAction::Outbound(packet) => match packet.body {
            PacketBody::Tcp(segment) => segment,
            PacketBody::Icmp(icmp) => panic!("{icmp:?}"),
        },
        action => panic!("{action:?}"),
    }
}

fn call(text: &str) -> crate::script::SystemCall {
    match events(text).remove(0).action {
        ScriptAction::Call(call) => call,
        action => panic!("{action:?}"),
    }
}

#[test]
fn times_are_absolute_relative_ranges_or_any() {
    let text = "0 > . 1:1(0) ack 1\n1.5 > . 1:1(0) ack 1\n+.25 > . 1:1(0) ack 1
        +.1~+.2 > . 1:1(0) ack 1\n1~2 > . 1:1(0) ack 1\n* > . 1:1(0) ack 1";
    let ms = Span::from_ms;
    let times: Vec<EventTime> = events(text).iter().map(|event| event.time).collect();
    assert_eq!(
        times,
        [
            EventTime::Absolute(Span::ZERO),
            EventTime::Absolute(ms(1_500)),
            EventTime::Relative(ms(250)),
            EventTime::RelativeRange(ms(100), ms(200)),
            EventTime::AbsoluteRange(ms(1_000), ms(2_000)),
            EventTime::Any,
        ]
    );
}

#[test]
fn a_segment_has_flags_numbers_window_and_options() {
    let text = "+0 < SEW 7:7(0) win 65535 urg 3 <mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7>";
    let segment = segment(text);
    assert_eq!(segment.flags, TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR);
    assert_eq!((segment.seq, segment.len, segment.ack), (7, 0, 0));
    assert_eq!((segment.window, segment.urgent), (Some(65_535), 3));
    let options = segment.options.unwrap();
    assert_eq!(
        options,
        [
            OptionSpec::Mss(1_460),
            OptionSpec::SackPermitted,
            OptionSpec::Timestamps { value: 1, echo: 0 },
            OptionSpec::Nop,
            OptionSpec::WindowScale(7),
        ]
    );
}

#[test]
fn an_expected_segment_may_leave_window_and_options_open() {
    let open = segment("+0 > P. 1:1001(1000) ack 1 <...>");
    assert_eq!((open.window, open.options), (None, None));
    let plain = segment("+0 > FP. 1:1001(1000) ack 1 win 0");
    assert_eq!((plain.window, plain.options), (Some(0), Some(Vec::new())));
    assert_eq!(plain.flags, TcpFlags::FIN | TcpFlags::PSH | TcpFlags::ACK);
    assert_eq!(segment("+0 > - 1:1(0)").flags, TcpFlags::NONE);
}

#[test]
fn sack_blocks_are_pairs() {
    let segment = segment("+0 < . 1:1(0) ack 1 win 5 <nop,nop,sack 5:6 9:12>");
    let sack = OptionSpec::Sack(vec![(5, 6), (9, 12)]);
    assert_eq!(segment.options.unwrap(), [OptionSpec::Nop, OptionSpec::Nop, sack]);
}

#[test]
fn a_sequence_number_wraps() {
    let segment = segment("+0 < . 4294967295:4(5) ack 1 win 5");
    assert_eq!((segment.seq, segment.len), (u32::MAX, 5));
}

#[test]
fn traffic_class_ports_and_time_to_live_precede_a_segment() {
    for (text, class) in [
        ("[ect0]", ClassSpec::Ecn(2)),
        ("[noecn]", ClassSpec::Ecn(0)),
        ("(tos 0x1b)", ClassSpec::Tos(0x1b)),
    ] {
        let text = format!("+0 < {text} 5000 > 80 . 1:1(0) ack 1 win 9");
        let ScriptAction::Inbound(packet) = events(&text).remove(0).action else { panic!() };
        assert_eq!((packet.class, packet.ports), (Some(class), Some((5_000, 80))));
    }
    let text = "+0 > [ttl 255] R 0:0(0)!";
    let ScriptAction::Outbound(packet) = events(text).remove(0).action else { panic!() };
    assert_eq!(packet.hop_limit, Some(255));
}

#[test]
fn an_icmp_error_names_type_code_mtu_and_segment() {
    let text = "+0 < icmp unreachable frag_needed mtu 1200 [1:1461(1460)]";
    let ScriptAction::Inbound(packet) = events(text).remove(0).action else { panic!() };
    let PacketBody::Icmp(icmp) = packet.body else { panic!() };
    assert_eq!((icmp.kind.as_str(), icmp.code.as_deref()), ("unreachable", Some("frag_needed")));
    assert_eq!((icmp.mtu, icmp.quoted), (Some(1_200), Some((1, 1_460))));
}

#[test]
fn a_call_has_arguments_a_result_and_an_error() {
    let call = call("+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)");
    assert_eq!(call.name, "connect");
    assert_eq!(call.arguments, [CallValue::Integer(3), CallValue::Any, CallValue::Any]);
    assert_eq!(call.result, CallValue::Integer(-1));
    assert_eq!(call.errno.as_deref(), Some("EINPROGRESS"));
}

#[test]
fn a_blocking_call_has_the_time_of_its_return() {
    let call = call("+0...0.2 read(4, ..., 1000) = 1000");
    assert_eq!(call.end, Some(Span::from_ms(200)));
}

#[test]
fn arguments_are_structures_lists_and_flags() {
    let address = "{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr(\"192.0.2.1\")}";
    let call = call(&format!(
        "+0 f({address}, [{{fd=3, events=POLLIN|POLLOUT}}], \"a\" \"b\") = 0x2 (flags O_RDWR)"
    ));
    let CallValue::Fields(fields) = &call.arguments[0] else { panic!() };
    let port = CallValue::Function("htons".into(), vec![CallValue::Integer(80)]);
    assert_eq!(fields[1], CallValue::Named("sin_port".into(), Box::new(port)));
    let CallValue::List(polled) = &call.arguments[1] else { panic!() };
    let CallValue::Fields(fields) = &polled[0] else { panic!() };
    let events = ["POLLIN", "POLLOUT"].map(|word| CallValue::Word(word.into()));
    let events = CallValue::Or(events.into());
    assert_eq!(fields[1], CallValue::Named("events".into(), Box::new(events)));
    assert_eq!(call.arguments[2], CallValue::Text("ab".into()));
    assert_eq!(call.result, CallValue::Integer(2));
}

#[test]
fn options_definitions_commands_and_comments_are_read() {
    let text = "--ip_version=ipv6 // comment
        --define=PORT=8080
        --local_ip=fd00::1
        `setup`
        /* over
           lines */
        0 `sysctl -q a.b=1`
        +0 f(PORT) = 0
        `cleanup`";
    let script = parse(text).unwrap();
    let values: Vec<&str> = script.options.iter().map(|option| &*option.value).collect();
    assert_eq!(values, ["ipv6", "PORT=8080", "fd00::1"]);
    assert_eq!(script.setup.len(), 2);
    let [command, call] = &script.events[..] else { panic!("{script:?}") };
    assert_eq!(command.action, ScriptAction::Command("sysctl -q a.b=1".into()));
    let ScriptAction::Call(call) = &call.action else { panic!() };
    assert_eq!(call.arguments, [CallValue::Integer(8_080)]);
}

/// Runs the code blocks of `text` with `tcpi_x` 7 and says which assertions hold.
fn assertions(text: &str) -> Vec<bool> {
    let mut names = CodeNames::default();
    let known = |name: &str| (name == "tcpi_x").then_some(7);
    let mut held = Vec::new();
    for event in events(text) {
        let ScriptAction::Code(statements) = event.action else { panic!() };
        for statement in statements {
            match statement {
                CodeStatement::Assign(name, value) => {
                    let value = names.evaluate(&value, &known).unwrap();
                    names.assigned.insert(name, value);
                }
                CodeStatement::Assert(condition, _) => {
                    held.push(names.evaluate(&condition, &known).unwrap() != 0);
                }
            }
        }
    }
    held
}

#[test]
fn code_compares_fields_with_numbers() {
    for (code, expected) in [
        ("assert tcpi_x == 7, tcpi_x", true),
        ("assert tcpi_x == 8, 'x=%d' % tcpi_x", false),
        ("assert 5 <= tcpi_x <= 7", true),
        ("assert 5 <= tcpi_x < 7", false),
        ("assert (tcpi_x & 4) != 0 and not tcpi_x == 3", true),
        ("assert tcpi_x == (4 | 2 | 1) or 0", true),
        ("assert tcpi_x - 2 * 3 == 1 # one", true),
    ] {
        assert_eq!(assertions(&format!("0 %{{ {code} }}%")), [expected], "{code}");
    }
}

#[test]
fn code_keeps_its_own_names_between_blocks() {
    let text = "0 %{ n = 2\nprint(n) }%\n+0 %{ n += 5; assert tcpi_x == n, \\\n n }%";
    assert_eq!(assertions(text), [true]);
}

#[test]
fn an_error_has_the_line_and_column_of_its_token() {
    for (text, line, column) in [
        // An error at the end names the position of the last token.
        ("0 > S 0:0(0)\n+0 < S 0:0(0)", 2, 13),
        ("0 > S 0:1(0)", 1, 11),
        ("0 > Q 0:0(0)", 1, 5),
        ("0 f(1 = 0", 1, 7),
        ("0 f(1) = 0\n  x", 2, 3),
        ("0 \"open", 1, 3),
        ("0 > S 0:0(0) <mss 99999>", 1, 19),
        ("+0 < . 1:1(0) ack 1 win 1 <...>", 1, 28),
        ("-1 f() = 0", 1, 1),
    ] {
        let error = parse(text).unwrap_err();
        let ScriptError::Syntax { at, .. } = error else { panic!("{text}: {error}") };
        assert_eq!(at, ScriptPosition { line, column }, "{text}: {error}");
    }
}

#[test]
fn what_is_not_implemented_is_called_unsupported() {
    for text in [
        "0 < S 0:0(0) win 1 <FO 0123456789abcdef>",
        "0 > P.5 1:1(0) ack 1",
        "0 < ipv4 192.0.2.1 > 192.0.2.2: S 0:0(0) win 1",
        "0 %{ for x in range(3): pass }%",
        "0 < udp (10)",
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error, ScriptError::Unsupported { .. }), "{text}: {error}");
    }
}

/// Pieces of which scripts consist.
const PIECES: [&str; 40] = [
    "0",
    "+",
    ".1",
    "~",
    "*",
    "<",
    ">",
    "S",
    ".",
    "1:1(0)",
    "ack",
    "win",
    "urg",
    "<mss 1,nop>",
    "<...>",
    "sack 1:2",
    "TS val 1 ecr 2",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "=",
    "|",
    ",",
    "...",
    "-1",
    "0x1f",
    "f(",
    "\"text\"",
    "`command`",
    "%{ assert a == 1 }%",
    "--a=b",
    "icmp",
    "mtu",
    "//\n",
    "/*",
    "%{",
    "192.0.2.1",
];

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_tokens_make_the_parser_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: Vec<&str> = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let _ = parse(&text.join(" "));
    }

    #[test]
    fn a_segment_is_read_as_it_was_written(
        seq in any::<u32>(), len in any::<u16>(), ack in any::<u32>(), window in any::<u16>(),
    ) {
        let end = seq.wrapping_add(len.into());
        let read = segment(&format!("0 < P. {seq}:{end}({len}) ack {ack} win {window}"));
        let flags = TcpFlags::PSH | TcpFlags::ACK;
        let options = Some(Vec::new());
        prop_assert_eq!(
            read,
            TcpSpec {
                flags, seq, len, absolute: false, ack, window: Some(window), urgent: 0, options,
            }
        );
    }
}
