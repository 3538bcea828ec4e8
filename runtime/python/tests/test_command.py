"""The command that comes with the package, from Python."""

import unittest

import bundled
import frostline

client = frostline.Client()


class Command(bundled.Case):
    def test_one_epoch_is_trained(self):
        events = []
        flags = {"freeze": "features", "epochs": 1, "batch": 32, "lr": 0.05, "feature_cache": "off"}
        out = self.folder / "tuned.onnx"
        done = client.train(bundled.MODEL, bundled.PHOTOS, out=out, runs=self.folder / "runs", on_event=events.append, **flags)
        self.assertEqual(done["event"], "done")
        self.assertTrue(out.is_file())
        self.assertEqual(sum(event["event"] == "epoch" for event in events), 1)

    def test_plans_and_profiles_are_dictionaries(self):
        plan = client.plan(bundled.MODEL, bundled.PHOTOS, freeze="features", batch=32)
        self.assertIn("link", plan)
        profile = client.profile(bundled.MODEL, bundled.PHOTOS, freeze="features")
        self.assertIn("profile", profile)

    def test_what_the_command_refuses_is_an_error_with_a_kind(self):
        with self.assertRaises(frostline.CommandError) as usage:
            client.train(bundled.MODEL, bundled.PHOTOS, nonsense=1)
        self.assertEqual((usage.exception.kind, usage.exception.code), ("usage", 2))
        with self.assertRaises(frostline.CommandError) as failed:
            client.plan(self.folder / "absent.onnx", bundled.PHOTOS)
        self.assertEqual(failed.exception.code, 1)
        self.assertIn("absent.onnx", str(failed.exception))

    def test_tokens_reach_the_command_through_no_file(self):
        reached = client.config(bundled.PHOTOS)
        with open(reached["token_file"]) as file:
            known = frostline.Client(reached["hosts"], file.read().strip())
        self.assertIn("profile", known.profile(bundled.MODEL, bundled.PHOTOS, freeze="features"))
        with self.assertRaises(frostline.CommandError) as denied:
            frostline.Client(reached["hosts"], "wrong").profile(bundled.MODEL, bundled.PHOTOS)
        self.assertEqual(denied.exception.kind, "unauthorized")

    def test_what_takes_too_long_is_ended(self):
        with self.assertRaises(frostline.CommandError) as late:
            client.profile(bundled.MODEL, bundled.PHOTOS, timeout=0.0)
        self.assertEqual(late.exception.kind, "timeout")


if __name__ == "__main__":
    unittest.main()
