//! Messages as bytes, and bytes as messages.

use crate::geometry::{SCALE_MAX, ViewPort};
use crate::item::ITEM_LEN;
use crate::message::{
    DisplayReply, DisplayRequest, HEADER_LEN, MessageHeader, MessageOpcode, REPLY_WANTED,
    RefusalCode,
};

/// Why a stream of messages cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {0} bytes is longer than this end takes")]
pub struct MessageTooLong(pub u32);

/// Cuts a stream of bytes into messages; keeps one that is not there as a whole.
#[derive(Debug)]
pub struct MessageReader {
    partial: Vec<u8>,
    body_max: usize,
}

impl MessageReader {
    /// Takes bodies of so many bytes at most.
    pub const fn new(body_max: usize) -> Self {
        Self { partial: Vec::new(), body_max }
    }

    /// Hands every message that is complete to `handle`; whether it wants more is what it returns. Gives back the input after the last
    /// message that was wanted: nothing, where all were.
    ///
    /// # Errors
    /// A message announces more than this end takes: nothing after it can be read.
    pub fn feed<'a>(
        &mut self,
        mut input: &'a [u8],
        mut handle: impl FnMut(MessageHeader, &[u8]) -> bool,
    ) -> Result<&'a [u8], MessageTooLong> {
        if !self.partial.is_empty() {
            self.complete(HEADER_LEN, &mut input);
            let Some(header) = self.partial.first_chunk() else { return Ok(input) };
            let header = MessageHeader::decode(header);
            let end = HEADER_LEN + self.body_len(header)?;
            self.complete(end, &mut input);
            if self.partial.len() < end {
                return Ok(input);
            }
            let wants_more = handle(header, &self.partial[HEADER_LEN..]);
            self.partial.clear();
            if !wants_more {
                return Ok(input);
            }
        }
        while let Some((header, rest)) = input.split_first_chunk() {
            let header = MessageHeader::decode(header);
            let Some((body, rest)) = rest.split_at_checked(self.body_len(header)?) else { break };
            input = rest;
            if !handle(header, body) {
                return Ok(input);
            }
        }
        self.partial.extend_from_slice(input);
        Ok(&[])
    }

    /// Moves bytes of the input to the partial message, until it has so many.
    fn complete(&mut self, len: usize, input: &mut &[u8]) {
        let missing = len.saturating_sub(self.partial.len()).min(input.len());
        let (now, rest) = input.split_at(missing);
        self.partial.extend_from_slice(now);
        *input = rest;
    }

    fn body_len(&self, header: MessageHeader) -> Result<usize, MessageTooLong> {
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        if len > self.body_max { Err(MessageTooLong(header.len)) } else { Ok(len) }
    }
}

/// Takes numbers from the front of a body.
struct BodyReader<'a>(&'a [u8]);

impl<'a> BodyReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], RefusalCode> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RefusalCode::Body)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, RefusalCode> {
        Ok(u16::from_le_bytes(*self.take()?))
    }

    fn u32(&mut self) -> Result<u32, RefusalCode> {
        Ok(u32::from_le_bytes(*self.take()?))
    }

    fn i32(&mut self) -> Result<i32, RefusalCode> {
        Ok(i32::from_le_bytes(*self.take()?))
    }

    fn u64(&mut self) -> Result<u64, RefusalCode> {
        Ok(u64::from_le_bytes(*self.take()?))
    }

    fn end<T>(&self, value: T) -> Result<T, RefusalCode> {
        if self.0.is_empty() { Ok(value) } else { Err(RefusalCode::Body) }
    }
}

impl<'a> DisplayRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// It is unknown, or its body is not as its kind has it.
    pub fn decode(header: MessageHeader, body: &'a [u8]) -> Result<Self, RefusalCode> {
        let opcode = MessageOpcode::of(header.opcode).ok_or(RefusalCode::Message)?;
        if header.flags & !REPLY_WANTED != 0 {
            return Err(RefusalCode::Body);
        }
        let mut reader = BodyReader(body);
        match opcode {
            MessageOpcode::Hello => {
                let version = reader.u16()?;
                // A later version may say more.
                Ok(Self::Hello { version })
            }
            MessageOpcode::Define => {
                let symbol = reader.u32()?;
                reader.end(Self::Define { symbol })
            }
            MessageOpcode::Add => {
                let (symbol, count) = (reader.u32()?, reader.u32()?);
                let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(ITEM_LEN));
                let parts = bytes.and_then(|bytes| reader.0.split_at_checked(bytes));
                let (items, tail) = parts.ok_or(RefusalCode::Body)?;
                Ok(Self::Add { symbol, items, tail })
            }
            MessageOpcode::Edit => {
                let (symbol, index) = (reader.u32()?, reader.u32()?);
                Ok(Self::Edit { symbol, index, item: reader.take()?, tail: reader.0 })
            }
            MessageOpcode::Remove => {
                let symbol = reader.u32()?;
                reader.end(Self::Remove { symbol })
            }
            MessageOpcode::View => Self::decode_view(reader),
            MessageOpcode::Close => {
                let view = reader.u32()?;
                reader.end(Self::Close { view })
            }
            MessageOpcode::Display => {
                let (view, mode) = (reader.u32()?, reader.u32()?);
                let is_whole = [false, true].get(mode as usize).ok_or(RefusalCode::Body)?;
                reader.end(Self::Display { view, is_whole: *is_whole })
            }
            MessageOpcode::Picture => {
                let view = reader.u32()?;
                reader.end(Self::Picture { view })
            }
            MessageOpcode::Sync => reader.end(Self::Sync),
            _ => Err(RefusalCode::Message),
        }
    }

    fn decode_view(mut reader: BodyReader<'a>) -> Result<Self, RefusalCode> {
        let (view, symbol) = (reader.u32()?, reader.u32()?);
        let size = (reader.u16()?, reader.u16()?);
        let port = ViewPort { x: reader.i32()?, y: reader.i32()?, scale: reader.u32()? };
        if size.0 == 0 || size.1 == 0 || port.scale == 0 || port.scale > SCALE_MAX {
            return Err(RefusalCode::Body);
        }
        reader.end(Self::View { view, symbol, size, port })
    }

    const fn opcode(&self) -> MessageOpcode {
        match self {
            Self::Hello { .. } => MessageOpcode::Hello,
            Self::Define { .. } => MessageOpcode::Define,
            Self::Add { .. } => MessageOpcode::Add,
            Self::Edit { .. } => MessageOpcode::Edit,
            Self::Remove { .. } => MessageOpcode::Remove,
            Self::View { .. } => MessageOpcode::View,
            Self::Close { .. } => MessageOpcode::Close,
            Self::Display { .. } => MessageOpcode::Display,
            Self::Picture { .. } => MessageOpcode::Picture,
            Self::Sync => MessageOpcode::Sync,
        }
    }

    /// Appends it.
    pub fn encode(&self, sequence: u16, wants_reply: bool, out: &mut Vec<u8>) {
        let flags = if wants_reply { REPLY_WANTED } else { 0 };
        let start = begin(out, self.opcode(), flags, sequence);
        match *self {
            Self::Hello { version } => out.extend(version.to_le_bytes()),
            Self::Define { symbol } | Self::Remove { symbol } => out.extend(symbol.to_le_bytes()),
            Self::Close { view } | Self::Picture { view } => out.extend(view.to_le_bytes()),
            Self::Add { symbol, items, tail } => {
                out.extend(symbol.to_le_bytes());
                out.extend(len_u32(items.len() / ITEM_LEN).to_le_bytes());
                out.extend_from_slice(items);
                out.extend_from_slice(tail);
            }
            Self::Edit { symbol, index, item, tail } => {
                out.extend(symbol.to_le_bytes());
                out.extend(index.to_le_bytes());
                out.extend_from_slice(item);
                out.extend_from_slice(tail);
            }
            Self::View { view, symbol, size, port } => {
                out.extend(view.to_le_bytes());
                out.extend(symbol.to_le_bytes());
                out.extend(size.0.to_le_bytes());
                out.extend(size.1.to_le_bytes());
                out.extend(port.x.to_le_bytes());
                out.extend(port.y.to_le_bytes());
                out.extend(port.scale.to_le_bytes());
            }
            Self::Display { view, is_whole } => {
                out.extend(view.to_le_bytes());
                out.extend(u32::from(is_whole).to_le_bytes());
            }
            Self::Sync => {}
        }
        end(out, start);
    }
}

impl<'a> DisplayReply<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(header: MessageHeader, body: &'a [u8]) -> Result<Self, RefusalCode> {
        let opcode = MessageOpcode::of(header.opcode).ok_or(RefusalCode::Message)?;
        let mut reader = BodyReader(body);
        match opcode {
            MessageOpcode::Welcome => {
                let version = reader.u16()?;
                reader.u16()?;
                Ok(Self::Welcome { version, body_max: reader.u32()? })
            }
            MessageOpcode::Done => reader.end(Self::Done),
            MessageOpcode::Displayed => {
                let (view, items, checksum) = (reader.u32()?, reader.u32()?, reader.u64()?);
                reader.end(Self::Displayed { view, items, checksum })
            }
            MessageOpcode::Pixels => Ok(Self::Pixels(body)),
            MessageOpcode::Refused => {
                let code = RefusalCode::of(reader.u16()?).ok_or(RefusalCode::Body)?;
                Ok(Self::Refused(code))
            }
            _ => Err(RefusalCode::Message),
        }
    }

    /// Appends it, as the reply to a message of this number.
    pub fn encode(&self, sequence: u16, out: &mut Vec<u8>) {
        let opcode = match self {
            Self::Welcome { .. } => MessageOpcode::Welcome,
            Self::Done => MessageOpcode::Done,
            Self::Displayed { .. } => MessageOpcode::Displayed,
            Self::Pixels(_) => MessageOpcode::Pixels,
            Self::Refused(_) => MessageOpcode::Refused,
        };
        let start = begin(out, opcode, 0, sequence);
        match *self {
            Self::Welcome { version, body_max } => {
                out.extend(version.to_le_bytes());
                out.extend([0; 2]);
                out.extend(body_max.to_le_bytes());
            }
            Self::Done => {}
            Self::Displayed { view, items, checksum } => {
                out.extend(view.to_le_bytes());
                out.extend(items.to_le_bytes());
                out.extend(checksum.to_le_bytes());
            }
            Self::Pixels(bytes) => out.extend_from_slice(bytes),
            Self::Refused(code) => out.extend((code as u16).to_le_bytes()),
        }
        end(out, start);
    }
}

/// Begins a message; where.
pub(crate) fn begin(out: &mut Vec<u8>, opcode: MessageOpcode, flags: u8, sequence: u16) -> usize {
    let start = out.len();
    out.extend(MessageHeader { opcode: opcode as u8, flags, sequence, len: 0 }.encode());
    start
}

/// Ends the message that begins there.
pub(crate) fn end(out: &mut [u8], start: usize) {
    let len = len_u32(out.len() - start - HEADER_LEN);
    out[start + 4..start + HEADER_LEN].copy_from_slice(&len.to_le_bytes());
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a message is shorter than 4 GiB")
}
