//! Clients and displays together: every way to draw gives the same frame, and bad input is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use plumb_display::agent::AgentSession;
use plumb_display::client::{ClientError, ClientMode, ClientStep, DisplayClient};
use plumb_display::frame::DisplayFrame;
use plumb_display::geometry::{SCALE_ONE, ViewPort};
use plumb_display::item::{BitmapRows, CORNER_LEN, DisplayItem, FillStipple, TailRange};
use plumb_display::message::{DisplayReply, DisplayRequest, RefusalCode, VERSION};
use plumb_display::render::LineCoding;
use plumb_display::scene::SceneLimits;
use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::{DirectTransport, DisplayConnection, DisplayTransport, DriveError};
use plumb_display::workload::{DisplayDrawing, DisplayRate, ROOT, VIEW};
use proptest::prelude::*;

fn connect() -> DisplayConnection<DirectTransport> {
    DisplayConnection::open(DirectTransport::new(DisplayLimits::default())).unwrap()
}

/// To an agent in the same thread, beside other applications of one display.
struct AgentTransport {
    session: AgentSession,
    display: Rc<RefCell<DisplayConnection<DirectTransport>>>,
}

impl AgentTransport {
    fn new(place: u32) -> Self {
        Self::to(place, &Rc::new(RefCell::new(connect())))
    }

    fn to(place: u32, display: &Rc<RefCell<DisplayConnection<DirectTransport>>>) -> Self {
        Self { session: AgentSession::new(place, 64 << 20), display: Rc::clone(display) }
    }
}

impl DisplayTransport for AgentTransport {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut display = self.display.borrow_mut();
        let mut input = bytes;
        while !input.is_empty() {
            let left = self.session.handle(input, &mut |steps| display.forward(steps));
            input = left.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.extend_from_slice(self.session.output());
        self.session.clear_output();
        Ok(())
    }
}

#[test]
fn a_picture_drawn_anew_costs_the_display_what_differs() {
    let mut agent = DisplayConnection::open(AgentTransport::new(1)).unwrap();
    let drawing = DisplayDrawing::FlatArray;
    agent.perform(&drawing.steps()[..1], ClientMode::BATCHED, 1).unwrap();
    agent.perform(&[drawing.view()], ClientMode::BATCHED, 1).unwrap();
    let counts = |agent: &DisplayConnection<AgentTransport>| {
        let display = agent.transport().display.borrow();
        let counts = display.transport().0.counts();
        (counts.items, display.client.counts().bytes_sent)
    };
    let mut steps = DisplayRate::Batch.steps(drawing);
    agent.perform(&steps, ClientMode::BATCHED, 1).unwrap();
    let first = counts(&agent);
    assert_eq!(first.0, u64::from(drawing.items()));
    let Some(ClientStep::Add { item, .. }) = steps.get_mut(400) else { panic!("an item") };
    item.values[0] += 1;
    agent.perform(&steps, ClientMode::BATCHED, 1).unwrap();
    let second = counts(&agent);
    assert_eq!(second.0 - first.0, 1, "one item differs");
    assert!((second.1 - first.1) * 100 < first.1, "{first:?} {second:?}");
}

#[test]
fn an_agent_makes_no_more_pictures_than_its_application_takes() {
    let mut display = connect();
    let mut session = AgentSession::new(0, 1 << 20);
    let view = DisplayDrawing::Text.view();
    let mut client = DisplayClient::new(ClientMode::BATCHED);
    for step in [ClientStep::Define { symbol: ROOT }, view] {
        client.perform(&step);
    }
    // Not drawn before: as a display has it, an empty frame.
    (0..2_000).for_each(|_| client.perform(&ClientStep::Picture { view: VIEW }));
    let (mut input, mut pictures, mut most) = (client.output(), 0, 0);
    while !input.is_empty() {
        input = session.handle(input, &mut |steps| display.forward(steps)).unwrap();
        most = most.max(session.output().len());
        pictures += session.output().windows(4).filter(|bytes| *bytes == b"\x89PNG").count();
        session.clear_output();
    }
    assert_eq!(pictures, 2_000);
    assert!(most < 2 << 20, "{most} bytes waited");
}

#[test]
fn applications_of_an_agent_do_not_see_each_other() {
    let server = Rc::new(RefCell::new(connect()));
    let open = |place| DisplayConnection::open(AgentTransport::to(place, &server)).unwrap();
    let (mut one, mut other) = (open(0), open(1));
    let draw = |agent: &mut DisplayConnection<AgentTransport>, drawing: DisplayDrawing| {
        let steps = [drawing.steps(), vec![drawing.view(), display(false)]].concat();
        agent.perform(&steps, ClientMode::BATCHED, 4_096).unwrap();
        agent.client.checksum()
    };
    let alone = |drawing| Some(self::draw(drawing, DisplayRate::Batch, 4_096).0);
    let (array, text) = (DisplayDrawing::StructuredArray { kinds: 3 }, DisplayDrawing::Text);
    assert_eq!(draw(&mut one, array), alone(array));
    assert_eq!(draw(&mut other, text), alone(text));
    one.perform(&[display(true)], ClientMode::BATCHED, 1).unwrap();
    assert_eq!(one.client.checksum(), alone(array));
}

#[test]
fn an_agent_tells_its_application_what_the_display_refuses_and_goes_on() {
    let limits = DisplayLimits { work: 40_000, ..DisplayLimits::default() };
    let server = DisplayConnection::open(DirectTransport::new(limits)).unwrap();
    let server = Rc::new(RefCell::new(server));
    let drawn = |place, drawing: DisplayDrawing| {
        let mut agent = DisplayConnection::open(AgentTransport::to(place, &server)).unwrap();
        let steps = [drawing.steps(), vec![drawing.view(), display(false)]].concat();
        let drawn = agent.perform(&steps, ClientMode::BATCHED, 4_096);
        drawn.map(|()| agent.client.checksum())
    };
    let refused = drawn(0, DisplayDrawing::FlatChip { side: 40 });
    let code = RefusalCode::Work;
    assert!(
        matches!(&refused, Err(DriveError::Client(ClientError::Refused(it))) if *it == code),
        "{refused:?}"
    );
    assert!(drawn(1, DisplayDrawing::FlatArray).unwrap().is_some());
}

#[test]
fn a_view_that_the_display_refuses_is_no_view_of_the_agents_either() {
    let view = DisplayDrawing::Text.view();
    let ClientStep::View { size, .. } = view else { panic!("a view") };
    // For one.
    let frames = DisplayFrame::bytes(size.0, size.1);
    let limits = DisplayLimits { frames, ..DisplayLimits::default() };
    let server = DisplayConnection::open(DirectTransport::new(limits)).unwrap();
    let server = Rc::new(RefCell::new(server));
    let drawn = |place| {
        let mut agent = DisplayConnection::open(AgentTransport::to(place, &server)).unwrap();
        let steps = [ClientStep::Define { symbol: ROOT }, view.clone(), display(false)];
        let is_drawn = agent.perform(&steps, ClientMode::BATCHED, 1).is_ok();
        (agent, is_drawn)
    };
    let leave = |agent: &DisplayConnection<AgentTransport>| {
        let steps = agent.transport().session.leave();
        server.borrow_mut().forward(&steps).expect("only what the display has is removed");
    };
    let ((first, is_first_drawn), (second, is_second_drawn)) = (drawn(0), drawn(1));
    assert!(is_first_drawn && !is_second_drawn);
    leave(&second);
    leave(&first);
    assert!(drawn(1).1, "the first has made room");
}

#[test]
fn a_view_of_a_symbol_that_was_removed_shows_nothing_through_an_agent_too() {
    let view = DisplayDrawing::Text.view();
    let steps = [ClientStep::Define { symbol: ROOT }, view, ClientStep::Remove { symbol: ROOT }];
    let steps = [&steps[..], &[display(false)]].concat();
    let mut direct = connect();
    direct.perform(&steps, ClientMode::BATCHED, 1).unwrap();
    let mut agent = DisplayConnection::open(AgentTransport::new(1)).unwrap();
    agent.perform(&steps, ClientMode::BATCHED, 1).unwrap();
    assert_eq!(agent.client.checksum(), direct.client.checksum());
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
    assert_eq!(frame(DisplayDrawing::FlatArray), frame(DisplayDrawing::ArrayBitmap));
    assert_eq!(frame(DisplayDrawing::Polygon), frame(DisplayDrawing::PolygonBitmap));
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
        (0..16_u8, point(), (1..20_u16, 1..9_u16), any::<u64>()).prop_map(|(c, p, size, bits)| {
            let mut tail = Vec::new();
            BitmapRows::encode(size, |x, y| bits >> ((x * 7 + y * 5) % 64) & 1 == 1, &mut tail);
            let len = i32::try_from(tail.len()).unwrap();
            (DisplayItem::bitmap(c, p, TailRange { offset: 0, len }), tail)
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

fn display(is_whole: bool) -> ClientStep {
    ClientStep::Display { view: VIEW, is_whole, is_proved: true }
}

/// Two empty symbols and a view, then these changes.
fn steps_of(changes: Vec<SceneChange>) -> Vec<ClientStep> {
    let mut port = ViewPort { x: 0, y: 0, scale: SCALE_ONE };
    let view = |port| ClientStep::View { view: VIEW, symbol: ROOT, size: (150, 130), port };
    let define = |symbol| ClientStep::Define { symbol };
    let mut steps = vec![define(0), define(1), view(port)];
    let mut lens = [0_usize; 2];
    for change in changes {
        steps.push(match change {
            SceneChange::Add(symbol, item, tail) => {
                lens[symbol as usize] += 1;
                ClientStep::Add { symbol, item, tail }
            }
            SceneChange::Edit(symbol, at, item, tail) => {
                let len = lens[symbol as usize];
                if len == 0 {
                    continue;
                }
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
        });
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What damage tracking draws is what drawing everything gives.
    #[test]
    fn drawing_what_changed_gives_the_whole_frame(changes in prop::collection::vec(change(), 1..40)) {
        let mut connection = connect();
        let steps = steps_of(changes);
        connection.perform(&steps[..3], ClientMode::BATCHED, 1).unwrap();
        connection.perform(&[display(false)], ClientMode::BATCHED, 1).unwrap();
        for step in steps.into_iter().skip(3) {
            connection.perform(&[step, display(false)], ClientMode::BATCHED, 1).unwrap();
        }
        let partial = connection.client.checksum();
        connection.perform(&[display(true)], ClientMode::BATCHED, 1).unwrap();
        prop_assert_eq!(partial, connection.client.checksum());
    }

    /// Whenever it is drawn, and however often.
    #[test]
    fn an_agent_draws_what_its_application_does(
        changes in prop::collection::vec((change(), any::<bool>()), 1..40), place in 0..8_u32,
    ) {
        let mut direct = connect();
        let mut agent = DisplayConnection::open(AgentTransport::new(place)).unwrap();
        let (changes, draws): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        for (step, draws) in steps_of(changes).into_iter().zip([false; 3].into_iter().chain(draws)) {
            direct.perform(std::slice::from_ref(&step), ClientMode::BATCHED, 1).unwrap();
            agent.perform(&[step], ClientMode::BATCHED, 1).unwrap();
            if draws {
                agent.perform(&[display(false)], ClientMode::BATCHED, 1).unwrap();
            }
        }
        direct.perform(&[display(true)], ClientMode::BATCHED, 1).unwrap();
        agent.perform(&[display(false)], ClientMode::BATCHED, 1).unwrap();
        prop_assert_eq!(direct.client.checksum(), agent.client.checksum());
        let AgentTransport { session, display } = agent.transport();
        let mut server = display.borrow_mut();
        server.forward(&session.leave()).unwrap();
        prop_assert_eq!(server.transport().0.scene().symbol_ids().count(), 0, "nothing stays");
    }

    #[test]
    fn no_bytes_panic_a_display_or_an_agent(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut server = DisplayServer::new(DisplayLimits::default());
        let mut hello = Vec::new();
        DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut hello);
        server.handle(&hello);
        server.handle(&bytes);
        let mut agent = AgentTransport::new(0);
        agent.send(&hello).unwrap();
        agent.send(&bytes).unwrap();
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
