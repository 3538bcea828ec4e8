//! Implements a different world, which imports sockets.

wit_bindgen::generate!({
    inline: "
        package other:place@1.2.3;
        interface sockets { connect: func(address: string) -> bool; }
        world elsewhere {
            import sockets;
            export run: func() -> bool;
        }
    ",
});

struct Elsewhere;

impl Guest for Elsewhere {
    fn run() -> bool {
        other::place::sockets::connect("198.51.100.1:443")
    }
}

export!(Elsewhere);
