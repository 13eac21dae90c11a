//! A display under arbitrary messages: nothing panics, and memory stays within its limit.

use plumb_base::seed::{RandomStream, Seed};
use plumb_display::agent::AgentSession;
use plumb_display::item::ITEM_LEN;
use plumb_display::message::{DisplayRequest, MessageHeader, VERSION};
use plumb_display::render::LineCoding;
use plumb_display::scene::SceneLimits;
use plumb_display::server::{DisplayCounts, DisplayLimits, DisplayServer};
use plumb_display::transport::{DirectTransport, DisplayConnection};
use rand::{Rng, RngExt};

/// What a client may use: little, so that every limit is reached.
const LIMITS: DisplayLimits = DisplayLimits {
    scene: SceneLimits { memory: 256 << 10, symbols: 64 },
    body: 1 << 16,
    frames: 128 << 10,
    views: 4,
    work: 1 << 14,
    refusals: u64::MAX,
    replies: 1 << 16,
    lines: LineCoding::Tuned,
};
/// A place of an agent that is not the first.
const PLACE: u32 = 2;
/// Opcodes of requests, and some that are none.
const OPCODES: u8 = 12;

/// A display, an agent with a display of its own, and messages to both that are mostly right.
#[derive(Debug)]
pub struct FuzzDisplay {
    server: DisplayServer,
    session: AgentSession,
    display: DisplayConnection<DirectTransport>,
    stream: RandomStream,
    message: Vec<u8>,
    total: DisplayCounts,
}

impl FuzzDisplay {
    /// A display that has greeted its client.
    pub fn new(seed: Seed) -> Self {
        let scene = SceneLimits { symbols: 1 << 16, ..LIMITS.scene };
        let display = DirectTransport::new(DisplayLimits { scene, views: 64, ..LIMITS });
        let display = DisplayConnection::open(display).expect("a display greets");
        let mut subject = Self {
            server: greeted(),
            session: AgentSession::new(PLACE, LIMITS.scene.memory),
            display,
            stream: seed.stream("display"),
            message: Vec::new(),
            total: DisplayCounts::default(),
        };
        subject.hand_on(&hello());
        subject
    }

    /// Sends a message, at times damaged, in one piece or two; checks the limits.
    pub fn feed(&mut self) {
        self.make_message();
        let is_damaged = self.stream.random_range(0..16) == 0;
        if is_damaged {
            // Not the length, which would end the connection most of the time.
            let at = self.stream.random_range(0..self.message.len());
            if !(4..8).contains(&at) {
                self.message[at] = self.stream.random();
            }
        }
        let cut = self.stream.random_range(0..=self.message.len());
        let (first, second) = self.message.split_at(cut);
        self.server.handle(first);
        self.server.handle(second);
        self.server.clear_output();
        let message = std::mem::take(&mut self.message);
        self.hand_on(&message[..cut]);
        self.hand_on(&message[cut..]);
        self.message = message;
        let limit = LIMITS.scene.memory + LIMITS.frames;
        assert!(self.server.memory() <= limit, "{} of {limit} bytes", self.server.memory());
        if self.server.is_closed() {
            self.restart();
        }
    }

    /// What was done over all connections.
    pub fn finish(mut self) -> DisplayCounts {
        self.restart();
        self.total
    }

    /// Gives bytes to the agent, whose display never goes.
    fn hand_on(&mut self, bytes: &[u8]) {
        let Self { session, display, .. } = self;
        let mut input = bytes;
        while !input.is_empty() {
            let left = session.handle(input, &mut |steps| display.forward(steps));
            input = left.expect("the display is there");
            session.clear_output();
        }
        assert!(session.memory() <= LIMITS.scene.memory, "{} bytes", session.memory());
        if session.is_closed() {
            display.forward(&session.leave()).expect("what was told is removed");
            let left = display.transport().0.scene().symbol_ids().count();
            assert_eq!(left, 0, "symbols of an application that has gone");
            *session = AgentSession::new(PLACE, LIMITS.scene.memory);
            self.hand_on(&hello());
        }
    }

    fn restart(&mut self) {
        self.total.add(self.server.counts());
        self.server = greeted();
    }

    fn make_message(&mut self) {
        let opcode = match self.stream.random_range(0..100) {
            // A greeting of another version would end the connection.
            0 => self.stream.random_range(11..=OPCODES),
            1..=8 => 2,
            9..=60 => 3,
            61..=75 => 4,
            76..=78 => 5,
            79..=84 => 6,
            85 => 7,
            86..=97 => 8,
            98 => 9,
            _ => 10,
        };
        let mut body = Vec::new();
        match opcode {
            2 | 5 => self.symbol(&mut body),
            3 => {
                self.symbol(&mut body);
                let count = self.stream.random_range(0..6_u32);
                body.extend(count.to_le_bytes());
                (0..count).for_each(|_| self.item(&mut body));
                self.tail(&mut body);
            }
            4 => {
                self.symbol(&mut body);
                body.extend(self.stream.random_range(0..8_u32).to_le_bytes());
                self.item(&mut body);
                self.tail(&mut body);
            }
            6 => {
                self.small(&mut body, 5);
                self.symbol(&mut body);
                for _ in 0..2 {
                    body.extend(self.stream.random_range(0..200_u16).to_le_bytes());
                }
                self.coordinate(&mut body);
                self.coordinate(&mut body);
                let scale: u32 = 1 << self.stream.random_range(0..26);
                body.extend(scale.to_le_bytes());
            }
            7 | 9 => self.small(&mut body, 5),
            8 => {
                self.small(&mut body, 5);
                self.small(&mut body, 3);
            }
            _ => {}
        }
        let len = u32::try_from(body.len()).expect("a short body");
        let flags = u8::from(self.stream.random_bool(0.5));
        let header = MessageHeader { opcode, flags, sequence: self.stream.random(), len };
        self.message.clear();
        self.message.extend(header.encode());
        self.message.extend(body);
    }

    fn small(&mut self, body: &mut Vec<u8>, below: u32) {
        body.extend(self.stream.random_range(0..below).to_le_bytes());
    }

    fn symbol(&mut self, body: &mut Vec<u8>) {
        self.small(body, 70);
    }

    /// Mostly near, at times as far as numbers go.
    fn coordinate(&mut self, body: &mut Vec<u8>) {
        let value: i32 = match self.stream.random_range(0..20) {
            0 => self.stream.random(),
            1 => 1 << 24,
            _ => self.stream.random_range(-50..250),
        };
        body.extend(value.to_le_bytes());
    }

    fn item(&mut self, body: &mut Vec<u8>) {
        let start = body.len();
        let kind = self.stream.random_range(0..7);
        let style = self.stream.random_range(0..0x50);
        body.extend([kind, if kind == 5 { style & 7 } else { style }, 0, 0]);
        self.coordinate(body);
        self.coordinate(body);
        match kind {
            3 | 4 => {
                let offset = self.stream.random_range(0..9) * 4_u32;
                body.extend(offset.to_le_bytes());
                body.extend((self.stream.random_range(0..5) * 8_u32).to_le_bytes());
            }
            5 => {
                self.symbol(body);
                body.extend([0; 4]);
            }
            6 => body.extend([0, 0, 0, 0, 8, 0, 0, 0]),
            _ => {
                self.coordinate(body);
                self.coordinate(body);
            }
        }
        debug_assert_eq!(body.len() - start, ITEM_LEN);
    }

    fn tail(&mut self, body: &mut Vec<u8>) {
        let mut tail = [0; 64];
        self.stream.fill_bytes(&mut tail);
        // Corners that are not too far away.
        tail.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number[2..].fill(0));
        if self.stream.random() {
            // A bitmap of 4 rows of up to 8 pixels.
            tail[..4].copy_from_slice(&[self.stream.random_range(5..9), 0, 4, 0]);
            tail[4..8].iter_mut().for_each(|row| *row &= 0x1f);
        }
        let len = self.stream.random_range(0..=tail.len());
        body.extend_from_slice(&tail[..len]);
    }
}

fn greeted() -> DisplayServer {
    let mut server = DisplayServer::new(LIMITS);
    server.handle(&hello());
    server.clear_output();
    server
}

fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    DisplayRequest::Hello { version: VERSION }.encode(0, true, &mut hello);
    hello
}

/// Gives any bytes to a display that has greeted its client.
pub fn check_display(bytes: &[u8]) {
    let mut server = greeted();
    server.handle(bytes);
    assert!(server.memory() <= LIMITS.scene.memory + LIMITS.frames);
}
