//! One header block: 512 bytes of fixed fields, in the v7, USTAR or GNU manner.

pub(super) const BLOCK: usize = 512;

/// The numbers of a header, and its block for the names.
pub(super) struct Header {
    block: [u8; BLOCK],
    pub(super) mode: u32,
    /// `None` where the number fits no user; a PAX record may still name one.
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) device: (u32, u32),
}

impl Header {
    pub(super) fn parse(block: [u8; BLOCK]) -> Result<Self, &'static str> {
        let field = |from: usize, to: usize| number(&block[from..to]);
        check_sum(&block)?;
        let kind = block[156];
        let has_device = is_extended(&block) && matches!(kind, b'3' | b'4');
        let device = |from, to| match has_device {
            true => number(&block[from..to])
                .and_then(|n| u32::try_from(n).map_err(|_| "a device out of range")),
            false => Ok(0),
        };
        Ok(Self {
            mode: u32::try_from(field(100, 108)? & 0o7777).map_err(|_| "a mode out of range")?,
            uid: user(field(108, 116)?),
            gid: user(field(116, 124)?),
            size: u64::try_from(field(124, 136)?).map_err(|_| "a negative size")?,
            modified: field(136, 148)?,
            device: (device(329, 337)?, device(337, 345)?),
            block,
        })
    }

    pub(super) fn kind_byte(&self) -> u8 {
        self.block[156]
    }

    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(&self.block[..100]);
        // GNU keeps other things where USTAR keeps the beginning of long names.
        let prefix = match () {
            () if !is_ustar(&self.block) => &[],
            () if &self.block[508..512] == b"tar\0" => text(&self.block[345..476]),
            () => text(&self.block[345..500]),
        };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.block[157..257]).to_vec()
    }
}

fn is_ustar(block: &[u8; BLOCK]) -> bool {
    &block[257..263] == b"ustar\0"
}

fn is_extended(block: &[u8; BLOCK]) -> bool {
    is_ustar(block) || &block[257..265] == b"ustar  \0"
}

/// All bytes added up, those of the sum itself taken as blanks; some old programs added signed ones.
fn check_sum(block: &[u8; BLOCK]) -> Result<(), &'static str> {
    let bytes = || {
        block.iter().enumerate().map(|(i, &byte)| if (148..156).contains(&i) { b' ' } else { byte })
    };
    let unsigned: i64 = bytes().map(i64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
    let told = number(&block[148..156])?;
    if told == unsigned || told == signed { Ok(()) } else { Err("a wrong checksum") }
}

/// Octal digits between blanks and NULs, or, with the first bit set, a big-endian number in two's complement.
fn number(field: &[u8]) -> Result<i64, &'static str> {
    if field[0] & 0x80 != 0 {
        let is_negative = field[0] & 0x40 != 0;
        let mut value: i128 = if is_negative { -1 } else { 0 };
        for (i, &byte) in field.iter().enumerate() {
            let byte = match i {
                0 if is_negative => byte | 0x80,
                0 => byte & 0x7f,
                _ => byte,
            };
            value = (value << 8) | i128::from(byte);
            if i64::try_from(value).is_err() {
                return Err("a number out of range");
            }
        }
        return i64::try_from(value).map_err(|_| "a number out of range");
    }
    let is_blank = |byte: &u8| matches!(byte, 0 | b' ');
    let begin = field.iter().position(|byte| !is_blank(byte)).unwrap_or(field.len());
    let rest = &field[begin..];
    let digits = &rest[..rest.iter().position(is_blank).unwrap_or(rest.len())];
    digits.iter().try_fold(0_i64, |value, &digit| match digit {
        // Twelve octal digits are 36 bits.
        b'0'..=b'7' => Ok(value * 8 + i64::from(digit - b'0')),
        _ => Err("a number that is not octal"),
    })
}

/// The last id means "unchanged" to the kernel and is nobody's.
pub(super) fn user(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&id| id != u32::MAX)
}

fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&byte| byte == 0).unwrap_or(field.len())]
}
