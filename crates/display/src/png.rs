//! A frame as a PNG file (ISO/IEC 15948), with a palette.

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use crate::frame::DisplayFrame;

/// Red, green and blue of each color.
pub const PALETTE: [[u8; 3]; 16] = [
    [0xff, 0xff, 0xff],
    [0x00, 0x00, 0x00],
    // The layers of a drawing of NMOS as Mead and Conway color them: metal, polysilicon, diffusion, implant.
    [0x2b, 0x6c, 0xd4],
    [0xd2, 0x2f, 0x2f],
    [0x2e, 0x8b, 0x3d],
    [0xd9, 0xa4, 0x00],
    [0x6a, 0x3d, 0x9a],
    [0x00, 0x8b, 0x8b],
    [0x80, 0x80, 0x80],
    [0xa6, 0xce, 0xe3],
    [0xfb, 0x9a, 0x99],
    [0xb2, 0xdf, 0x8a],
    [0xfd, 0xbf, 0x6f],
    [0xca, 0xb2, 0xd6],
    [0x40, 0x40, 0x40],
    [0xc0, 0xc0, 0xc0],
];

/// The file.
pub fn encode(frame: &DisplayFrame) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend(u32::from(frame.width()).to_be_bytes());
    header.extend(u32::from(frame.height()).to_be_bytes());
    // Eight bits a pixel, each an index of the palette.
    header.extend([8, 3, 0, 0, 0]);
    chunk(&mut file, *b"IHDR", &header);
    chunk(&mut file, *b"PLTE", PALETTE.as_flattened());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    for y in 0..usize::from(frame.height()) {
        let row: Vec<u8> = std::iter::once(0).chain(frame.row(y)).collect();
        encoder.write_all(&row).expect("memory takes every byte");
    }
    chunk(&mut file, *b"IDAT", &encoder.finish().expect("memory takes every byte"));
    chunk(&mut file, *b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let len = u32::try_from(data.len()).expect("a frame is shorter than 4 GiB");
    file.extend(len.to_be_bytes());
    let mut sum = Crc::new();
    for part in [&kind[..], data] {
        sum.update(part);
        file.extend_from_slice(part);
    }
    file.extend(sum.sum().to_be_bytes());
}
