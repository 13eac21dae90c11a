//! What displays and their clients say to each other. `docs/display-protocol.md` has it byte by byte.

use crate::geometry::ViewPort;
use crate::item::{ITEM_LEN, ItemError};
use crate::render::OutOfBudget;
use crate::scene::SceneError;

/// Version of the protocol that this is.
pub const VERSION: u16 = 1;
/// Bytes before the body of a message.
pub const HEADER_LEN: usize = 8;
/// Bytes of a body, at most, that every display takes.
pub const BODY_MIN: usize = 1 << 16;

/// The message asks for a reply.
pub const REPLY_WANTED: u8 = 1;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageOpcode {
    /// The first message of a client: its version.
    Hello = 1,
    /// Makes a symbol without items.
    Define = 2,
    /// Adds items to a symbol's end.
    Add = 3,
    /// Replaces an item.
    Edit = 4,
    /// Removes a symbol.
    Remove = 5,
    /// Makes or changes a view.
    View = 6,
    /// Removes a view.
    Close = 7,
    /// Draws a view; its reply proves it.
    Display = 8,
    /// Asks for a view's pixels.
    Picture = 9,
    /// Does nothing: for its reply.
    Sync = 10,
    /// Replies to [`MessageOpcode::Hello`].
    Welcome = 0x81,
    /// Replies that a message was carried out.
    Done = 0x82,
    /// Replies to [`MessageOpcode::Display`].
    Displayed = 0x83,
    /// Replies to [`MessageOpcode::Picture`].
    Pixels = 0x84,
    /// Says that a message was not carried out.
    Refused = 0x85,
}

impl MessageOpcode {
    const ALL: [Self; 15] = [
        Self::Hello,
        Self::Define,
        Self::Add,
        Self::Edit,
        Self::Remove,
        Self::View,
        Self::Close,
        Self::Display,
        Self::Picture,
        Self::Sync,
        Self::Welcome,
        Self::Done,
        Self::Displayed,
        Self::Pixels,
        Self::Refused,
    ];

    /// The message of a byte.
    pub(crate) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == byte)
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// What it is: an [`MessageOpcode`], or unknown.
    pub opcode: u8,
    /// [`REPLY_WANTED`] or nothing.
    pub flags: u8,
    /// Number of the message; of a reply, of what it replies to.
    pub sequence: u16,
    /// Bytes that follow.
    pub len: u32,
}

impl MessageHeader {
    /// Its bytes.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let (number, len) = (self.sequence.to_le_bytes(), self.len.to_le_bytes());
        [self.opcode, self.flags, number[0], number[1], len[0], len[1], len[2], len[3]]
    }

    /// From its bytes.
    pub const fn decode(bytes: &[u8; HEADER_LEN]) -> Self {
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            sequence: u16::from_le_bytes([bytes[2], bytes[3]]),
            len: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayRequest<'a> {
    /// The client's version.
    Hello {
        /// Its version.
        version: u16,
    },
    /// A symbol without items.
    Define {
        /// Its number.
        symbol: u32,
    },
    /// More items.
    Add {
        /// Of which symbol.
        symbol: u32,
        /// [`ITEM_LEN`] bytes each.
        items: &'a [u8],
        /// Text, corners and rows.
        tail: &'a [u8],
    },
    /// Another item.
    Edit {
        /// Of which symbol.
        symbol: u32,
        /// In place of which.
        index: u32,
        /// Its bytes.
        item: &'a [u8; ITEM_LEN],
        /// Its text, corners or rows.
        tail: &'a [u8],
    },
    /// A symbol no more.
    Remove {
        /// Which.
        symbol: u32,
    },
    /// A view, new or changed.
    View {
        /// Its number.
        view: u32,
        /// What it shows.
        symbol: u32,
        /// Width and height in pixels.
        size: (u16, u16),
        /// What part of it.
        port: ViewPort,
    },
    /// A view no more.
    Close {
        /// Which.
        view: u32,
    },
    /// Draw.
    Display {
        /// Which view.
        view: u32,
        /// All of it, not only what changed.
        is_whole: bool,
    },
    /// Pixels.
    Picture {
        /// Of which view.
        view: u32,
    },
    /// A reply, once all before is done.
    Sync,
}

/// What a display replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayReply<'a> {
    /// It takes this client.
    Welcome {
        /// Its version.
        version: u16,
        /// Bytes of a body that it takes at most.
        body_max: u32,
    },
    /// Carried out.
    Done,
    /// Drawn.
    Displayed {
        /// Which view.
        view: u32,
        /// Items drawn for it.
        items: u32,
        /// Checksum of the frame.
        checksum: u64,
    },
    /// A picture, as a PNG file.
    Pixels(&'a [u8]),
    /// Not carried out.
    Refused(RefusalCode),
}

/// Why a display does not do what a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[repr(u16)]
pub enum RefusalCode {
    /// Another version.
    #[error("the display has another version of the protocol; use the same plumb at both ends")]
    Version = 1,
    /// Something else than a greeting came first.
    #[error("the first message was not a greeting; the peer is not a display client")]
    Greeting = 2,
    /// No such message.
    #[error("the display does not know a message")]
    Message = 3,
    /// A body too short or too long for its message, or without meaning.
    #[error("a message has another length or content than its kind has")]
    Body = 4,
    /// A body longer than the display takes.
    #[error("a message is longer than the display takes; send less in each")]
    Length = 5,
    /// [`SceneError::UnknownSymbol`]
    #[error("a symbol is not defined; define it first")]
    UnknownSymbol = 6,
    /// [`SceneError::SymbolNumber`]
    #[error("a symbol's number is beyond the display's largest; use smaller numbers")]
    SymbolNumber = 7,
    /// [`SceneError::Cycle`]
    #[error("a call would make a symbol contain itself")]
    Cycle = 8,
    /// [`SceneError::Depth`]
    #[error("a call would nest symbols too deep")]
    Depth = 9,
    /// [`SceneError::Called`]
    #[error("a symbol is called by others; remove their calls first")]
    Called = 10,
    /// [`SceneError::ItemNumber`]
    #[error("a symbol has fewer items")]
    ItemNumber = 11,
    /// [`ItemError`]
    #[error("an item is of an unknown kind or style, or lacks its text, corners or rows")]
    Item = 12,
    /// [`ItemError::Coordinate`]
    #[error("a coordinate of an item is too far from zero")]
    Coordinate = 13,
    /// [`SceneError::Memory`]
    #[error("the display is out of memory; remove symbols or views, or raise its limit")]
    Memory = 14,
    /// No such view.
    #[error("a view does not exist; create it first")]
    UnknownView = 15,
    /// [`OutOfBudget`]
    #[error("a frame has more to draw than the display allows; show less of it at once")]
    Work = 16,
    /// Too much was refused before.
    #[error("the display refused too many messages of this client")]
    Refusals = 17,
}

impl RefusalCode {
    /// Every code.
    pub const ALL: [Self; 17] = [
        Self::Version,
        Self::Greeting,
        Self::Message,
        Self::Body,
        Self::Length,
        Self::UnknownSymbol,
        Self::SymbolNumber,
        Self::Cycle,
        Self::Depth,
        Self::Called,
        Self::ItemNumber,
        Self::Item,
        Self::Coordinate,
        Self::Memory,
        Self::UnknownView,
        Self::Work,
        Self::Refusals,
    ];

    /// Whether the display closes the connection after it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Version | Self::Greeting | Self::Length | Self::Refusals)
    }

    /// The code of a number.
    pub(crate) fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as u16 == number)
    }
}

impl From<SceneError> for RefusalCode {
    fn from(error: SceneError) -> Self {
        match error {
            SceneError::UnknownSymbol(_) => Self::UnknownSymbol,
            SceneError::SymbolNumber(_) => Self::SymbolNumber,
            SceneError::Cycle(_) => Self::Cycle,
            SceneError::Depth => Self::Depth,
            SceneError::Called(_) => Self::Called,
            SceneError::ItemNumber(_) => Self::ItemNumber,
            SceneError::Item(ItemError::Coordinate) => Self::Coordinate,
            SceneError::Item(_) => Self::Item,
            SceneError::Memory => Self::Memory,
        }
    }
}

impl From<ItemError> for RefusalCode {
    fn from(error: ItemError) -> Self {
        SceneError::Item(error).into()
    }
}

impl From<OutOfBudget> for RefusalCode {
    fn from(_: OutOfBudget) -> Self {
        Self::Work
    }
}
