// SPDX-License-Identifier: MIT
/** Makes garbage, keeps some of it, and asks for three collections: Collections KEEP-EVERY. */
public class Collections {
    static final java.util.ArrayList<byte[]> kept = new java.util.ArrayList<>();
    static Object last;

    public static void main(String[] words) {
        int every = Integer.parseInt(words[0]);

        for (int i = 0; i < 60000; i++) {
            byte[] one = new byte[2000];

            last = one;
            if (i % every == 0)
                kept.add(one);
        }
        for (int i = 0; i < 3; i++)
            System.gc();
    }
}
