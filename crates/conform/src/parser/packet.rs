//! Packets in a script.

use plumb_wire::tcp::TcpFlags;

use super::{ParseResult, ScriptParser};
use crate::lexer::TokenKind;
use crate::script::{ClassSpec, IcmpSpec, OptionSpec, PacketBody, PacketSpec, TcpSpec};

impl ScriptParser {
    pub(super) fn packet(&mut self) -> ParseResult<PacketSpec> {
        let inbound = self.has_sign('<');
        self.next += 1;
        if let Some(TokenKind::Word(word)) = self.peek()
            && matches!(word.as_str(), "ipv4" | "ipv6" | "gre" | "GREv0" | "mpls")
        {
            return self.unsupported("packets in packets");
        }
        let (class, hop_limit) = self.ip_fields(inbound)?;
        if self.has_word("encap") {
            return self.unsupported("encapsulation");
        }
        if self.has_word("udp") {
            return self.unsupported("UDP");
        }
        if self.take_word("icmp") {
            let body = PacketBody::Icmp(self.icmp()?);
            return Ok(PacketSpec { class, hop_limit, ports: None, body });
        }
        let mut ports = None;
        if let Some(TokenKind::Integer(_)) = self.peek() {
            let source = self.integer("a source port")?;
            self.expect_sign('>')?;
            ports = Some((source, self.integer("a destination port")?));
        }
        let body = PacketBody::Tcp(self.segment(inbound)?);
        if self.has_sign('/') {
            return self.unsupported("TCP in UDP");
        }
        Ok(PacketSpec { class, hop_limit, ports, body })
    }

    /// What is in brackets before the segment.
    fn ip_fields(&mut self, inbound: bool) -> ParseResult<(Option<ClassSpec>, Option<u8>)> {
        let end = match self.peek() {
            Some(TokenKind::Sign('(')) => ')',
            Some(TokenKind::Sign('[')) => ']',
            _ => return Ok((None, None)),
        };
        self.next += 1;
        let (mut class, mut hop_limit) = (None, None);
        loop {
            let field = self.word("a field of the IP header")?;
            match field.as_str() {
                "noecn" => class = Some(ClassSpec::Ecn(0)),
                "ect1" => class = Some(ClassSpec::Ecn(1)),
                "ect0" => class = Some(ClassSpec::Ecn(2)),
                "ce" => class = Some(ClassSpec::Ecn(3)),
                "ect01" if inbound => return self.error("an inbound packet has one ECN value"),
                "ect01" => class = Some(ClassSpec::EctAny),
                "tos" | "class" => {
                    let Some(&TokenKind::Hex(value)) = self.peek() else {
                        return self.error("a hexadecimal number is expected");
                    };
                    let Ok(value) = u8::try_from(value) else {
                        return self.error("a traffic class has eight bits");
                    };
                    self.next += 1;
                    class = Some(ClassSpec::Tos(value));
                }
                "ttl" | "hlim" => hop_limit = Some(self.integer("a time to live")?),
                "flowlabel" => return self.unsupported("flow labels"),
                _ => {
                    self.next -= 1;
                    return self.error("a field of the IP header is expected");
                }
            }
            if !self.take_sign(',') {
                self.expect_sign(end)?;
                return Ok((class, hop_limit));
            }
        }
    }

    fn segment(&mut self, inbound: bool) -> ParseResult<TcpSpec> {
        let flags = self.flags()?;
        let (seq, len) = self.seq()?;
        let absolute = self.take_sign('!');
        let ack =
            if self.take_word("ack") { self.integer("an acknowledgement number")? } else { 0 };
        let window = match self.take_word("win") {
            true => Some(self.integer("a window")?),
            false if inbound => return self.error("'win' is expected in an inbound segment"),
            false => None,
        };
        let urgent = if self.take_word("urg") { self.integer("an urgent pointer")? } else { 0 };
        let options = self.tcp_options(inbound)?;
        Ok(TcpSpec { flags, seq, len, absolute, ack, window, urgent, options })
    }

    fn flags(&mut self) -> ParseResult<TcpFlags> {
        if self.take_sign('-') {
            return Ok(TcpFlags::NONE);
        }
        let mut flags = TcpFlags::NONE;
        let mut found = false;
        if let Some(TokenKind::Word(word)) = self.peek() {
            for letter in word.chars() {
                flags = flags
                    | match letter {
                        'F' => TcpFlags::FIN,
                        'S' => TcpFlags::SYN,
                        'R' => TcpFlags::RST,
                        'P' => TcpFlags::PSH,
                        'U' => TcpFlags::URG,
                        'E' => TcpFlags::ECE,
                        'W' | 'C' => TcpFlags::CWR,
                        'A' => TcpFlags::AE,
                        _ => return self.error("TCP flags, some of 'FSRPUEWA.', are expected"),
                    };
            }
            self.next += 1;
            found = true;
        }
        if let Some(TokenKind::Decimal(_)) = self.peek() {
            return self.unsupported("accurate ECN");
        }
        if self.take_sign('.') {
            return Ok(flags | TcpFlags::ACK);
        }
        if found { Ok(flags) } else { self.error("TCP flags, some of 'FSRPUEWA.', are expected") }
    }

    /// `start:end(len)`.
    fn seq(&mut self) -> ParseResult<(u32, u16)> {
        let start: u32 = self.integer("a sequence number")?;
        self.expect_sign(':')?;
        let end: u32 = self.integer("a sequence number")?;
        self.expect_sign('(')?;
        let len: u16 = self.integer("a length")?;
        if start.wrapping_add(len.into()) != end {
            self.next -= 1;
            return self
                .error("a length that is the difference of the sequence numbers is expected");
        }
        self.expect_sign(')')?;
        Ok((start, len))
    }

    fn tcp_options(&mut self, inbound: bool) -> ParseResult<Option<Vec<OptionSpec>>> {
        let mut options = Vec::new();
        if !self.take_sign('<') {
            return Ok(Some(options));
        }
        if self.peek() == Some(&TokenKind::Ellipsis) {
            if inbound {
                return self.error("an inbound segment has definite options");
            }
            self.next += 1;
            self.expect_sign('>')?;
            return Ok(None);
        }
        loop {
            options.push(self.tcp_option()?);
            if !self.take_sign(',') {
                self.expect_sign('>')?;
                return Ok(Some(options));
            }
        }
    }

    fn tcp_option(&mut self) -> ParseResult<OptionSpec> {
        let name = self.word("a TCP option")?;
        Ok(match name.as_str() {
            "nop" => OptionSpec::Nop,
            "eol" => OptionSpec::Eol,
            "mss" => OptionSpec::Mss(self.integer("an MSS")?),
            "wscale" => OptionSpec::WindowScale(self.integer("a shift")?),
            "sackOK" => OptionSpec::SackPermitted,
            "sack" => OptionSpec::Sack(self.sack_blocks()?),
            "TS" => {
                self.expect_word("val")?;
                let value = self.integer("a timestamp")?;
                self.expect_word("ecr")?;
                OptionSpec::Timestamps { value, echo: self.integer("a timestamp")? }
            }
            "md5" => return self.unsupported("TCP MD5 signatures"),
            "FO" | "FOEXP" => return self.unsupported("TCP fast open"),
            "ECN" => return self.unsupported("accurate ECN"),
            _ => {
                self.next -= 1;
                return self.error("a TCP option is expected");
            }
        })
    }

    fn sack_blocks(&mut self) -> ParseResult<Vec<(u32, u32)>> {
        let mut blocks = Vec::new();
        while blocks.is_empty() || matches!(self.peek(), Some(TokenKind::Integer(_))) {
            let left = self.integer("the left edge of a block")?;
            self.expect_sign(':')?;
            blocks.push((left, self.integer("the right edge of a block")?));
        }
        Ok(blocks)
    }

    fn icmp(&mut self) -> ParseResult<IcmpSpec> {
        let at = self.at();
        let kind = self.word("a type of ICMP message")?;
        let code = match self.peek() {
            Some(TokenKind::Word(word)) if !matches!(word.as_str(), "mtu" | "id") => {
                Some(self.word("a code of an ICMP message")?)
            }
            _ => None,
        };
        let mtu = if self.take_word("mtu") { Some(self.integer("an MTU")?) } else { None };
        if self.has_word("id") {
            return self.unsupported("ICMP echo");
        }
        let mut quoted = None;
        if self.take_sign('[') {
            if self.has_word("udp") || self.has_word("raw") {
                return self.unsupported("ICMP about other protocols than TCP");
            }
            quoted = Some(self.seq()?);
            if self.has_sign('/') {
                return self.unsupported("TCP in UDP");
            }
            self.expect_sign(']')?;
        }
        Ok(IcmpSpec { at, kind, code, mtu, quoted })
    }
}
