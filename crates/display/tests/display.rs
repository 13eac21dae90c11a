//! Clients and displays together: every way to draw gives the same frame, and bad input is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use plumb_display::client::{ClientError, ClientMode, ClientStep, DisplayClient};
use plumb_display::geometry::{SCALE_ONE, ViewPort};
use plumb_display::item::{CORNER_LEN, DisplayItem, FillStipple, TailRange};
use plumb_display::message::{DisplayReply, DisplayRequest, RefusalCode, VERSION};
use plumb_display::render::LineCoding;
use plumb_display::scene::SceneLimits;
use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::{DirectTransport, DisplayConnection, DriveError};
use plumb_display::workload::{DisplayDrawing, DisplayRate, ROOT, VIEW};
use proptest::prelude::*;

fn connect() -> DisplayConnection<DirectTransport> {
    DisplayConnection::open(DirectTransport::new(DisplayLimits::default())).unwrap()
}

/// The frame of a drawing, and what it took.
fn draw(drawing: DisplayDrawing, rate: DisplayRate, write: usize) -> (u64, u64, u64) {
    let mut connection = connect();
    let mut steps = vec![ClientStep::Define { symbol: ROOT }, drawing.view()];
    steps.extend(rate.steps(drawing));
    connection.perform(&steps, rate.mode(), write).unwrap();
    let counts = connection.client.counts();
    (connection.client.checksum().unwrap(), counts.messages, counts.waits)
}

#[test]
fn every_way_to_draw_gives_the_same_frame() {
    for drawing in [DisplayDrawing::Polygon, DisplayDrawing::FlatArray, DisplayDrawing::Text] {
        let (batch, batch_messages, batch_waits) = draw(drawing, DisplayRate::Batch, 4_096);
        let (incremental, messages, waits) = draw(drawing, DisplayRate::Incremental, 1);
        let (pipelined, _, pipelined_waits) = draw(drawing, DisplayRate::PipelinedIncremental, 1);
        assert_eq!((batch, batch), (incremental, pipelined), "{drawing:?}");
        let items = u64::from(drawing.items());
        assert!(messages > 2 * items && waits >= 2 * items, "{messages} {waits}");
        assert!(batch_messages < 10 && batch_waits == 2 && pipelined_waits == 2);
    }
}

#[test]
fn structure_draws_what_a_flat_list_does_with_fewer_bytes() {
    let frame = |drawing| draw(drawing, DisplayRate::Batch, 1 << 16).0;
    assert_eq!(
        frame(DisplayDrawing::FlatArray),
        frame(DisplayDrawing::StructuredArray { kinds: 1 })
    );
    assert_eq!(
        frame(DisplayDrawing::FlatChip { side: 9 }),
        frame(DisplayDrawing::StructuredChip { side: 9 })
    );
    let bytes = |drawing: DisplayDrawing| {
        let mut connection = connect();
        connection.perform(&drawing.steps(), ClientMode::BATCHED, 4_096).unwrap();
        connection.client.counts().bytes_sent
    };
    assert!(
        bytes(DisplayDrawing::StructuredArray { kinds: 1 }) * 10 < bytes(DisplayDrawing::FlatArray)
    );
}

/// A random scene of two levels, with everything that can be drawn.
fn item() -> impl Strategy<Value = (DisplayItem, Vec<u8>)> {
    let point = || (-60..200_i32, -60..200_i32);
    let corner = point().prop_map(|(x, y)| [x.to_le_bytes(), y.to_le_bytes()].concat());
    let stipple =
        prop_oneof![Just(FillStipple::Solid), Just(FillStipple::Dots), Just(FillStipple::Rising)];
    prop_oneof![
        (0..16_u8, point(), point()).prop_map(|(c, p, q)| (DisplayItem::vector(c, p, q), vec![])),
        (0..16_u8, stipple.clone(), point(), point())
            .prop_map(|(c, s, p, q)| (DisplayItem::rectangle(c, s, p, q), vec![])),
        (0..16_u8, point(), "[ -~]{0,9}").prop_map(|(c, p, text)| {
            let range = TailRange { offset: 0, len: i32::try_from(text.len()).unwrap() };
            (DisplayItem::text(c, p, range), text.into_bytes())
        }),
        (0..16_u8, stipple, prop::collection::vec(corner, 0..7)).prop_map(|(c, s, corners)| {
            let len = i32::try_from(corners.len() * CORNER_LEN).unwrap();
            (DisplayItem::polygon(c, s, TailRange { offset: 0, len }), corners.concat())
        }),
        (0..8_u8, point()).prop_map(|(turn, at)| (DisplayItem::call(1, turn, at), vec![])),
    ]
}

#[derive(Clone, Debug)]
enum SceneChange {
    Add(u32, DisplayItem, Vec<u8>),
    Edit(u32, usize, DisplayItem, Vec<u8>),
    Pan(i32, i32),
    Zoom(u32),
    Clear(u32),
}

fn change() -> impl Strategy<Value = SceneChange> {
    let leaf = || item().prop_filter("no call", |(item, _)| item.called().is_none());
    prop_oneof![
        4 => item().prop_map(|(item, tail)| SceneChange::Add(0, item, tail)),
        3 => leaf().prop_map(|(item, tail)| SceneChange::Add(1, item, tail)),
        2 => (any::<prop::sample::Index>(), item())
            .prop_map(|(at, (item, tail))| SceneChange::Edit(0, at.index(64), item, tail)),
        2 => (any::<prop::sample::Index>(), leaf())
            .prop_map(|(at, (item, tail))| SceneChange::Edit(1, at.index(64), item, tail)),
        1 => (-5..5_i32, -5..5_i32).prop_map(|(x, y)| SceneChange::Pan(x * 8, y * 8)),
        1 => (1_u32..300_000).prop_map(SceneChange::Zoom),
        1 => (0..2_u32).prop_map(SceneChange::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What damage tracking draws is what drawing everything gives.
    #[test]
    fn drawing_what_changed_gives_the_whole_frame(changes in prop::collection::vec(change(), 1..40)) {
        let mut connection = connect();
        let mut port = ViewPort { x: 0, y: 0, scale: SCALE_ONE };
        let view = |port| ClientStep::View { view: VIEW, symbol: ROOT, size: (150, 130), port };
        let display = |is_whole| ClientStep::Display { view: VIEW, is_whole, is_proved: true };
        let define = |symbol| ClientStep::Define { symbol };
        let begin = [define(0), define(1), view(port), display(false)];
        connection.perform(&begin, ClientMode::BATCHED, 1).unwrap();
        let mut lens = [0_usize; 2];
        for change in changes {
            let step = match change {
                SceneChange::Add(symbol, item, tail) => {
                    lens[symbol as usize] += 1;
                    ClientStep::Add { symbol, item, tail }
                }
                SceneChange::Edit(symbol, at, item, tail) => {
                    let len = lens[symbol as usize];
                    if len == 0 { continue; }
                    let index = u32::try_from(at % len).unwrap();
                    ClientStep::Edit { symbol, index, item, tail }
                }
                SceneChange::Pan(x, y) => {
                    port = ViewPort { x: port.x + x, y: port.y + y, ..port };
                    view(port)
                }
                SceneChange::Zoom(scale) => {
                    port.scale = scale;
                    view(port)
                }
                SceneChange::Clear(symbol) => {
                    lens[symbol as usize] = 0;
                    define(symbol)
                }
            };
            connection.perform(&[step, display(false)], ClientMode::BATCHED, 1).unwrap();
        }
        let partial = connection.client.checksum();
        connection.perform(&[display(true)], ClientMode::BATCHED, 1).unwrap();
        prop_assert_eq!(partial, connection.client.checksum());
    }

    #[test]
    fn no_bytes_panic_a_display(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut server = DisplayServer::new(DisplayLimits::default());
        let mut hello = Vec::new();
        DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut hello);
        server.handle(&hello);
        server.handle(&bytes);
    }
}

#[test]
fn messages_may_come_in_any_pieces() {
    let drawing = DisplayDrawing::StructuredArray { kinds: 4 };
    let mut client = DisplayClient::new(ClientMode::BATCHED);
    for step in [
        vec![ClientStep::Define { symbol: ROOT }, drawing.view()],
        DisplayRate::Batch.steps(drawing),
    ]
    .concat()
    {
        client.perform(&step);
    }
    let checksum = |piece: usize| {
        let mut server = DisplayServer::new(DisplayLimits::default());
        for bytes in client.output().chunks(piece) {
            server.handle(bytes);
        }
        assert!(server.counts().refused.is_empty(), "{:?}", server.counts());
        let mut reader = DisplayClient::new(ClientMode::BATCHED);
        reader.handle(server.output()).unwrap();
        reader.checksum().unwrap()
    };
    let whole = checksum(usize::MAX);
    for piece in [1, 3, 7, 8, 9, 100, 1_000] {
        assert_eq!(checksum(piece), whole, "pieces of {piece}");
    }
}

proptest! {
    #[test]
    fn both_codings_of_lines_draw_the_same_pixels(
        lines in prop::collection::vec((-20..60_i32, -20..60_i32, -20..60_i32, -20..60_i32, 1..255_u8), 1..20),
    ) {
        let frame = |lines_coding| {
            let limits = DisplayLimits { lines: lines_coding, ..DisplayLimits::default() };
            let mut connection = DisplayConnection::open(DirectTransport::new(limits)).unwrap();
            let port = ViewPort { x: 0, y: 0, scale: SCALE_ONE };
            let mut steps = vec![
                ClientStep::Define { symbol: ROOT },
                ClientStep::View { view: VIEW, symbol: ROOT, size: (37, 29), port },
            ];
            steps.extend(lines.iter().map(|(x0, y0, x1, y1, color)| ClientStep::Add {
                symbol: ROOT,
                item: DisplayItem::vector(*color, (*x0, *y0), (*x1, *y1)),
                tail: Vec::new(),
            }));
            steps.push(ClientStep::Display { view: VIEW, is_whole: true, is_proved: true });
            connection.perform(&steps, ClientMode::BATCHED, 4_096).unwrap();
            connection.client.checksum().unwrap()
        };
        prop_assert_eq!(frame(LineCoding::Tuned), frame(LineCoding::Plain));
    }
}

/// The refusal that a request gets after a greeting.
fn refusal(request: &DisplayRequest<'_>, limits: DisplayLimits) -> Option<RefusalCode> {
    let mut server = DisplayServer::new(limits);
    let mut bytes = Vec::new();
    DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut bytes);
    DisplayRequest::Define { symbol: ROOT }.encode(1, false, &mut bytes);
    request.encode(2, true, &mut bytes);
    server.handle(&bytes);
    server.counts().refused.keys().next().copied()
}

#[test]
fn what_cannot_be_done_is_refused_and_said_why() {
    let limits = DisplayLimits::default();
    let port = ViewPort { x: 0, y: 0, scale: SCALE_ONE };
    let own = DisplayItem::call(0, 0, (0, 0)).encode();
    let far = DisplayItem::vector(0, (i32::MAX, 0), (0, 0)).encode();
    for (request, code) in [
        (DisplayRequest::Hello { version: 9 }, RefusalCode::Version),
        (DisplayRequest::Add { symbol: 0, items: &own, tail: &[] }, RefusalCode::Cycle),
        (DisplayRequest::Add { symbol: 0, items: &far, tail: &[] }, RefusalCode::Coordinate),
        (DisplayRequest::Add { symbol: 5, items: &[], tail: &[] }, RefusalCode::UnknownSymbol),
        (
            DisplayRequest::Edit { symbol: 0, index: 0, item: &own, tail: &[] },
            RefusalCode::ItemNumber,
        ),
        (DisplayRequest::Define { symbol: u32::MAX }, RefusalCode::SymbolNumber),
        (DisplayRequest::Display { view: 3, is_whole: true }, RefusalCode::UnknownView),
        (
            DisplayRequest::View { view: 0, symbol: 9, size: (1, 1), port },
            RefusalCode::UnknownSymbol,
        ),
        (
            DisplayRequest::View { view: 0, symbol: 0, size: (u16::MAX, u16::MAX), port },
            RefusalCode::Memory,
        ),
    ] {
        assert_eq!(refusal(&request, limits), Some(code), "{request:?}");
    }
    let large = vec![0; 2 << 20];
    let request = DisplayRequest::Add { symbol: 0, items: &[], tail: &large };
    assert_eq!(refusal(&request, limits), Some(RefusalCode::Length));
}

#[test]
fn a_drawing_that_grows_exponentially_is_refused_in_bounded_work() {
    let limits = DisplayLimits { work: 1 << 20, ..DisplayLimits::default() };
    let mut connection = DisplayConnection::open(DirectTransport::new(limits)).unwrap();
    let mut steps: Vec<_> = (0..32).map(|symbol| ClientStep::Define { symbol }).collect();
    let add = |symbol, item| ClientStep::Add { symbol, item, tail: vec![] };
    steps.push(add(31, DisplayItem::vector(1, (0, 0), (5, 5))));
    for symbol in (0..31).rev() {
        let call = DisplayItem::call(i32::try_from(symbol).unwrap() + 1, 0, (0, 0));
        steps.extend((0..30).map(|_| add(symbol, call)));
    }
    steps.push(DisplayDrawing::FlatArray.view());
    steps.push(ClientStep::Display { view: VIEW, is_whole: true, is_proved: true });
    let refused = connection.perform(&steps, ClientMode::BATCHED, 4_096).unwrap_err();
    let is_work = matches!(refused, DriveError::Client(ClientError::Refused(RefusalCode::Work)));
    assert!(is_work, "{refused}");
}

#[test]
fn only_a_greeting_may_come_first() {
    let mut server = DisplayServer::new(DisplayLimits::default());
    server.handle(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert!(server.is_closed());
    let mut server = DisplayServer::new(DisplayLimits::default());
    let mut bytes = Vec::new();
    DisplayRequest::Sync.encode(0, true, &mut bytes);
    server.handle(&bytes);
    let mut expected = Vec::new();
    DisplayReply::Refused(RefusalCode::Greeting).encode(0, &mut expected);
    assert_eq!(server.output(), expected);
    assert!(server.is_closed());
}

#[test]
fn a_client_that_is_always_refused_is_closed() {
    let limits = DisplayLimits { refusals: 50, ..DisplayLimits::default() };
    let mut server = DisplayServer::new(limits);
    let mut bytes = Vec::new();
    DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut bytes);
    for sequence in 1..100 {
        DisplayRequest::Remove { symbol: 7 }.encode(sequence, false, &mut bytes);
    }
    server.handle(&bytes);
    assert!(server.is_closed());
    assert_eq!(server.counts().refused[&RefusalCode::UnknownSymbol], 50);
}

#[test]
fn short_requests_for_long_replies_wait_until_the_replies_are_taken() {
    const PICTURES: u16 = 200;
    let limits = DisplayLimits { replies: 1_000, ..DisplayLimits::default() };
    let mut server = DisplayServer::new(limits);
    let mut bytes = Vec::new();
    let port = ViewPort { x: 0, y: 0, scale: SCALE_ONE };
    DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut bytes);
    DisplayRequest::Define { symbol: ROOT }.encode(1, false, &mut bytes);
    let view = DisplayRequest::View { view: VIEW, symbol: ROOT, size: (400, 400), port };
    view.encode(2, false, &mut bytes);
    server.handle(&bytes);
    server.clear_output();
    bytes.clear();
    DisplayRequest::Picture { view: VIEW }.encode(3, true, &mut bytes);
    server.handle(&bytes);
    let reply = server.output().len();
    server.clear_output();
    bytes.clear();
    for sequence in 0..PICTURES {
        DisplayRequest::Picture { view: VIEW }.encode(sequence, true, &mut bytes);
    }
    // In pieces that end within messages, as a socket gives them.
    let mut pictures = 0;
    for mut piece in bytes.chunks(101) {
        while !piece.is_empty() {
            piece = server.handle_some(piece);
            let len = server.output().len();
            assert!(len < limits.replies + reply, "{len} bytes wait; a picture has {reply}");
            pictures += len / reply;
            server.clear_output();
        }
    }
    assert_eq!(pictures, usize::from(PICTURES), "none is lost");
    assert_eq!(server.counts().messages, 4 + u64::from(PICTURES));
    assert!(server.counts().refused.is_empty());
}

#[test]
fn a_display_that_was_restarted_is_told_of_everything_again() {
    let limits = SceneLimits::default();
    let mut client = DisplayClient::with_mirror(ClientMode::BATCHED, limits);
    let drawing = DisplayDrawing::StructuredArray { kinds: 3 };
    let mut steps = vec![ClientStep::Define { symbol: ROOT }, drawing.view()];
    steps.extend(DisplayDrawing::StructuredArray { kinds: 3 }.steps());
    let text = ClientStep::Add {
        symbol: ROOT,
        item: DisplayItem::text(1, (20, 20), TailRange { offset: 0, len: 4 }),
        tail: b"plum".to_vec(),
    };
    steps.push(text);
    let proof = ClientStep::Display { view: VIEW, is_whole: false, is_proved: true };
    for step in steps.iter().chain([&proof]) {
        client.perform(step);
    }
    let mut first = DisplayServer::new(DisplayLimits::default());
    first.handle(client.output());
    client.clear_output();
    client.handle(first.output()).unwrap();
    let before = client.checksum().unwrap();

    // The display is gone in the middle of an edit, of which nothing arrived.
    let edit = DisplayItem::rectangle(1, FillStipple::Solid, (0, 0), (9, 9));
    client.perform(&ClientStep::Edit { symbol: ROOT, index: 3, item: edit, tail: vec![] });
    client.clear_output();
    client.reconnect();
    client.perform(&proof);
    let mut second = DisplayServer::new(DisplayLimits::default());
    second.handle(client.output());
    client.handle(second.output()).unwrap();
    let after = client.checksum().unwrap();
    assert_ne!(before, after, "the edit is shown");
    assert_eq!(second.scene().symbol(ROOT).unwrap().items()[3], edit);
    assert_eq!(second.scene().symbol_ids().count(), first.scene().symbol_ids().count());
}

#[test]
fn frames_are_the_same_everywhere() {
    // Recorded once: whole numbers alone decide them.
    let drawings = [DisplayDrawing::Polygon, DisplayDrawing::FlatArray, DisplayDrawing::Text];
    let drawn =
        drawings.map(|drawing| format!("{:016x}", draw(drawing, DisplayRate::Batch, 1 << 16).0));
    assert_eq!(drawn, ["9cc4e65a6eac4566", "6d088fc5e7eeb4f8", "d466df1295b53ed2"]);
}
