//! Counts the groups of prefix codes in lossless WebP data. In addition to the pixels, this number determines
//! the memory that decoding needs. A few bits of data describe a table of 4 KiB, and a file with 4 x 4 pixels
//! can describe 327,680 tables.
//!
//! Several images precede the codes. Only their largest literal is needed, because copies and the color cache
//! repeat earlier values.
//!
//! Format: <https://developers.google.com/speed/webp/docs/webp_lossless_bitstream_specification>.

/// Number and size of the prefix codes in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codes {
    /// Number of groups with five codes each.
    pub(crate) groups: u64,
    /// Total number of symbols per group.
    pub(crate) symbols: u64,
}

/// Symbols of the five codes without a color cache (green and lengths, red, blue, alpha, distances).
const SYMBOLS: [usize; 5] = [256 + 24, 256, 256, 256, 40];
const LENGTHS_ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const LONGEST: usize = 15;

/// Parses a `VP8L` chunk. Returns `None` if the data is truncated or invalid before the codes.
pub(crate) fn codes(chunk: &[u8]) -> Option<Codes> {
    let mut bits = Bits {
        bytes: chunk,
        place: 0,
    };
    bits.read(8)?;
    let width = bits.read(14)? + 1;
    let height = bits.read(14)? + 1;
    bits.read(4)?;
    bits.codes(width, height)
}

/// Parses an `ALPH` chunk for an image with the given size. The result is zero if alpha is not compressed.
pub(crate) fn alpha_codes(chunk: &[u8], width: u32, height: u32) -> Option<Codes> {
    let (first, rest) = chunk.split_first()?;
    if first & 3 != 1 {
        return Some(Codes {
            groups: 0,
            symbols: 0,
        });
    }
    Bits {
        bytes: rest,
        place: 0,
    }
    .codes(width, height)
}

/// Reads bits, starting with the lowest bit of each byte.
struct Bits<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0, |value, bit| {
            let byte = self.bytes.get(self.place / 8)?;
            let one = u32::from(byte >> (self.place % 8) & 1);
            self.place += 1;
            Some(value | one << bit)
        })
    }

    fn codes(&mut self, width: u32, height: u32) -> Option<Codes> {
        let width = self.transforms(width, height)?;
        let cache = self.cache()?;
        let groups = if self.read(1)? == 1 {
            let block = self.read(3)? + 2;
            self.max_literal(blocks(width, block), blocks(height, block))? + 1
        } else {
            1
        };
        let symbols = SYMBOLS.iter().sum::<usize>() + cache;
        Some(Codes {
            groups: groups.into(),
            symbols: symbols as u64,
        })
    }

    /// Skips the transforms and returns the width of the coded image after them.
    fn transforms(&mut self, mut width: u32, height: u32) -> Option<u32> {
        // Each of the four transforms can occur once.
        let mut seen = [false; 4];
        while self.read(1)? == 1 {
            let transform = self.read(2)?;
            if std::mem::replace(seen.get_mut(transform as usize)?, true) {
                return None;
            }
            match transform {
                // Predictor and color transforms, which contain an image with one pixel per block.
                0 | 1 => {
                    let block = self.read(3)? + 2;
                    self.max_literal(blocks(width, block), blocks(height, block))?;
                }
                // Color table. With few colors, several pixels share a byte.
                3 => {
                    let colors = self.read(8)? + 1;
                    self.max_literal(colors, 1)?;
                    let shared = match colors {
                        0..=2 => 3,
                        3..=4 => 2,
                        5..=16 => 1,
                        _ => 0,
                    };
                    width = blocks(width, shared);
                }
                _ => {}
            }
        }
        Some(width)
    }

    /// Reads the number of colors in the cache, or 0 if there is no cache.
    fn cache(&mut self) -> Option<usize> {
        if self.read(1)? == 0 {
            return Some(0);
        }
        let bits = self.read(4)?;
        (1..=11).contains(&bits).then_some(1 << bits)
    }

    /// Decodes an image with one group of codes. Returns the maximum of red and green as a 16-bit number.
    fn max_literal(&mut self, width: u32, height: u32) -> Option<u32> {
        let cache = self.cache()?;
        let mut codes = Vec::new();
        for (place, symbols) in SYMBOLS.into_iter().enumerate() {
            codes.push(self.code(if place == 0 { symbols + cache } else { symbols })?);
        }
        let [green, red, blue, alpha, distance] = codes.as_slice() else {
            return None;
        };
        let mut left = u64::from(width) * u64::from(height);
        let mut largest = 0;
        while left > 0 {
            let before = self.place;
            let length = match self.symbol(green)? {
                literal @ 0..256 => {
                    largest = largest.max(self.symbol(red)? << 8 | literal);
                    self.symbol(blue)?;
                    self.symbol(alpha)?;
                    1
                }
                copy @ 256..280 => {
                    let length = self.prefixed(copy - 256)?;
                    let distance = self.symbol(distance)?;
                    self.prefixed(distance)?;
                    length
                }
                _ => 1,
            };
            if self.place == before {
                // Codes without bits repeat the same symbol until the end.
                break;
            }
            left = left.saturating_sub(length.into());
        }
        Some(largest)
    }

    /// Reads a length or distance, given the prefix.
    fn prefixed(&mut self, prefix: u32) -> Option<u32> {
        if prefix < 4 {
            return Some(prefix + 1);
        }
        let extra = (prefix - 2) >> 1;
        Some(((2 + (prefix & 1)) << extra) + self.read(extra)? + 1)
    }

    fn code(&mut self, symbols: usize) -> Option<Code> {
        if self.read(1)? == 1 {
            let two = self.read(1)? == 1;
            let wide = self.read(1)?;
            let first = self.read(1 + 7 * wide)?;
            let second = if two { Some(self.read(8)?) } else { None };
            return Some(Code::simple(first, second));
        }
        let mut lengths = [0; 19];
        let count = self.read(4)? as usize + 4;
        for place in LENGTHS_ORDER.iter().take(count) {
            *lengths.get_mut(*place)? = self.read(3)?;
        }
        let code = Code::from_lengths(&lengths);
        let mut read = if self.read(1)? == 1 {
            let bits = 2 + 2 * self.read(3)?;
            self.read(bits)? as usize + 2
        } else {
            symbols
        };
        let mut lengths = Vec::new();
        let mut last = 8;
        while lengths.len() < symbols && read > 0 {
            read -= 1;
            let (length, times) = match self.symbol(&code)? {
                16 => (last, self.read(2)? + 3),
                17 => (0, self.read(3)? + 3),
                18 => (0, self.read(7)? + 11),
                length => (length, 1),
            };
            last = if length == 0 { last } else { length };
            lengths.extend(std::iter::repeat_n(length, times as usize));
        }
        Some(Code::from_lengths(&lengths))
    }

    fn symbol(&mut self, code: &Code) -> Option<u32> {
        let mut value = 0;
        let mut first = 0;
        let mut place = 0;
        if code.only.is_some() {
            return code.only;
        }
        for count in &code.of_length {
            value |= self.read(1)?;
            if value < first + count {
                return code
                    .symbols
                    .get((place + value).checked_sub(first)? as usize)
                    .copied();
            }
            place += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        None
    }
}

/// A canonical prefix code.
struct Code {
    /// Number of codes by length, starting with 1 bit.
    of_length: [u32; LONGEST],
    /// Symbols, sorted by code length and value.
    symbols: Vec<u32>,
    /// The only symbol, if any. Its code has zero bits.
    only: Option<u32>,
}

impl Code {
    fn simple(first: u32, second: Option<u32>) -> Self {
        let mut of_length = [0; LONGEST];
        if let (Some(one), Some(_)) = (of_length.first_mut(), second) {
            *one = 2;
        }
        Self {
            of_length,
            only: second.is_none().then_some(first),
            symbols: std::iter::once(first).chain(second).collect(),
        }
    }

    fn from_lengths(lengths: &[u32]) -> Self {
        let mut coded: Vec<(u32, u32)> = (0..)
            .zip(lengths)
            .filter(|(_, length)| **length > 0)
            .map(|(symbol, length)| (*length, symbol))
            .collect();
        coded.sort_unstable();
        if let [(_, only)] = coded.as_slice() {
            return Self::simple(*only, None);
        }
        let mut of_length = [0; LONGEST];
        for (length, _) in &coded {
            if let Some(count) = of_length.get_mut(*length as usize - 1) {
                *count += 1;
            }
        }
        Self {
            of_length,
            symbols: coded.into_iter().map(|(_, symbol)| symbol).collect(),
            only: None,
        }
    }
}

/// Returns the number of blocks with `1 << bits` pixels per side.
fn blocks(side: u32, bits: u32) -> u32 {
    side.div_ceil(1 << bits)
}
