//! The packets of a capture file as datagrams to a mirror: their lengths and contents, behind headers of its own.

use std::fs;

use plumb_wire::capture::CaptureReader;

/// Packets that are taken of a capture, the first ones.
const PACKETS_MAX: usize = 4_096;

/// Bytes of a file that is read at all.
const FILE_MAX: u64 = 256 << 20;

/// Headers of a UDP datagram over Ethernet and IPv4, which every packet loses as many bytes to.
const HEADERS: usize = 14 + 20 + 8;

/// The most that a datagram over IPv4 carries.
const PAYLOAD_MAX: usize = 65_535 - 20 - 8;

/// What each packet of a capture carries as a datagram in a frame of its length.
///
/// # Errors
/// Says what is wrong with the file.
pub fn payloads(path: &str) -> Result<Vec<Vec<u8>>, String> {
    let fault = |why: &dyn std::fmt::Display| format!("cannot replay '{path}': {why}");
    let len = fs::metadata(path).map_err(|error| fault(&error))?.len();
    if len > FILE_MAX {
        let why = format!(
            "it has {len} bytes, and at most {FILE_MAX} are read; cut it with 'editcap -c'"
        );
        return Err(fault(&why));
    }
    let file = fs::read(path).map_err(|error| fault(&error))?;
    let mut payloads = Vec::new();
    for packet in CaptureReader::new(&file).map_err(|error| fault(&error))?.take(PACKETS_MAX) {
        let packet = packet.map_err(|error| fault(&error))?;
        let payload = packet.bytes.get(HEADERS..).unwrap_or_default();
        payloads.push(payload[..payload.len().min(PAYLOAD_MAX)].to_vec());
    }
    if payloads.is_empty() { Err(fault(&"it has no packet")) } else { Ok(payloads) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_length_and_what_is_no_capture_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.pcap");
        let path = path.to_str().unwrap();
        let mut file = Vec::new();
        // The classic format's header (magic, 2.4, zone, accuracy, snap length, Ethernet), then packets.
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            file.extend(word.to_le_bytes());
        }
        for len in [20_u32, 60, 1_514] {
            for word in [0, 0, len, len] {
                file.extend(word.to_le_bytes());
            }
            file.extend(vec![7; usize::try_from(len).unwrap()]);
        }
        fs::write(path, &file).unwrap();
        let lengths: Vec<usize> = payloads(path).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [0, 18, 1_472]);
        for (bytes, why) in
            [(&file[..24], "no packet"), (&b"hello"[..], "text"), (&file[..90], "cut off")]
        {
            fs::write(path, bytes).unwrap();
            assert!(payloads(path).unwrap_err().contains(why), "{why}: {:?}", payloads(path));
        }
        assert!(payloads("/nowhere.pcap").unwrap_err().contains("/nowhere.pcap"));
    }
}
